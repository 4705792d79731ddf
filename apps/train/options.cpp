// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/options.hpp"

#include <CLI/CLI.hpp>

#include "apps/train/failure.hpp"

namespace train {
namespace {

// An empty description keeps the help a plain table of options.
CLI::Validator in(double low, double high) { return CLI::Range(low, high).description(""); }

void declare(CLI::App& app, Options& o) {
  // The upper bounds only catch typing errors before they become gigabytes.
  const CLI::Validator count = in(1, 1e9), count_or_none = in(0, 1e9), size = in(1, 65536), fraction = in(0, 1);
  app.set_help_flag("-h,--help", "Print this and exit");
  app.option_defaults()->always_capture_default();

  app.option_defaults()->group("Data and model");
  app.add_option("--data", o.data, "File or folder to learn from, as bytes; its last tenth is held out")
      ->type_name("PATH");
  app.add_option("--context", o.shape.context, "Bytes the model sees at once")->check(size);
  app.add_option("--layers", o.shape.layers, "Transformer blocks")->check(size);
  app.add_option("--heads", o.shape.heads, "Attention heads; must divide the width")->check(size);
  app.add_option("--width", o.shape.width, "Numbers per byte between layers")->check(size);

  app.option_defaults()->group("Training");
  app.add_option("--steps", o.steps, "Optimisation steps")->check(count);
  app.add_option("--global-batch", o.global_batch,
                 "Sequences per step, all workers together; how many workers there are does not change the result")
      ->check(count);
  app.add_option("--lr", o.learning_rate, "Peak learning rate; a cosine takes it down to a tenth")->check(fraction);
  app.add_option("--warmup", o.warmup, "Steps until the peak")->check(count_or_none);
  app.add_option("--weight-decay", o.weight_decay, "AdamW's decay of matrices")->check(fraction);
  app.add_option("--clip", o.clip, "Largest norm of the averaged gradient; 0: no limit")->check(count_or_none);
  app.add_option("--seed", o.seed, "Of the weights, the order of the data, and the sample")->check(in(0, 1.9e19));

  app.option_defaults()->group("Checkpoints");
  app.add_option("--checkpoint", o.checkpoint,
                 "File to write, by rank 0; one from an earlier run of the same training "
                 "is kept as FILE.previous, any other is never touched")
      ->type_name("FILE");
  app.add_option("--checkpoint-every", o.checkpoint_every, "Steps between checkpoints; 0: write none")
      ->check(count_or_none);
  app.add_flag("--resume", o.resume,
               "Continue from the checkpoint if there is one. A job restarted by its launcher "
               "continues from its own checkpoint without this");

  app.add_flag(
      "--keep", o.keep,
      "Have the model and its optimizer's state in memory that ddprun --keep-memory keeps, so that a restarted "
      "job goes on after its last step instead of from a checkpoint");

  app.option_defaults()->group("Output");
  app.add_option("--validate-every", o.validate_every, "Steps between validations; 0: at start and end only")
      ->check(count_or_none);
  app.add_option("--sample-bytes", o.sample_bytes, "Bytes of text to write at the end")->check(count_or_none);
  app.add_option("--log", o.log, "File for one line per step: step and loss")->type_name("FILE");
  app.add_option(
         "--times", o.times,
         "File to which each worker adds a line per step: rank, restarts of the job, step, pid, and nanoseconds "
         "since 1970")
      ->type_name("FILE");
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Trains a small byte-level GPT on all workers of a job, averaging gradients with libddp.", "train");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& e) {
    throw BadInput(std::string(e.what()) + " (see train --help)");
  }
  if (options.shape.width % options.shape.heads != 0) {
    throw BadInput("--width " + std::to_string(options.shape.width) + " is not a multiple of --heads " +
                   std::to_string(options.shape.heads));
  }
  return options;
}

}  // namespace train
