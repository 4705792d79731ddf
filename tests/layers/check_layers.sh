#!/bin/bash
# Checks the arrows of ARCHITECTURE.md by what the sources include: $1 is the repository.
# Prints each include that points the wrong way; exit code 1 if there is one.
set -u
cd "$1" || exit 2
bad=0

# forbid FOLDERS PATTERN EXCEPT: no file in FOLDERS may include PATTERN, but for the files matching EXCEPT.
forbid() {
  local found
  found=$(grep -rnE --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.c' \
    "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($2)" $1 | grep -vE "^($3):")
  if [ -n "$found" ]; then
    printf '%s\n' "$found"
    bad=1
  fi
}
none='-'

# The arrows.
forbid rendezvous   'apps/|launcher/|runtime/|collectives/|ddp/'                          "$none"
forbid collectives  'apps/|launcher/|runtime/|ddp/'                                       "$none"
forbid launcher     'apps/|runtime/|collectives/|ddp/'                                    "$none"
forbid runtime      'apps/|launcher/'                                                     "$none"
forbid 'apps/train apps/examples' 'rendezvous/|launcher/|collectives/|runtime/'           "$none"
# The control half of rendezvous is the launcher's: libddp links the store half only.
control='rendezvous/(coordinator|link_)'
forbid 'collectives runtime' "$control" "$none"
forbid rendezvous "$control" 'rendezvous/(coordinator|link_)[a-z_]*\.[ch]pp'
# Within libddp: process groups know nothing of training.
forbid runtime/src  'runtime/training/'                                                   "$none"
# Installed headers stand alone.
forbid runtime/include 'rendezvous/|collectives/|runtime/' "$none"

# Third-party headers in their homes.
code='apps launcher rendezvous collectives runtime'
forbid "$code" 'CLI/'                    'apps/ddprun/declaration\.hpp|apps/(train/options|ddp_store/main|ddp_bench/(main|mpi_main|[a-z]+_command))\.cpp'
forbid "$code" 'boost/'                  'rendezvous/net/asio\.[ch]pp'
forbid "$code" '(spdlog|fmt)/'           'launcher/log\.cpp|runtime/include/ddp/spdlog\.hpp'
forbid "$code" 'nlohmann/'               'apps/(ddp_store/main|ddp_bench/(main|[a-z]+_command))\.cpp|rendezvous/link_codec\.cpp|launcher/(error_file|json_text)\.cpp|runtime/(training/(safetensors|checkpoint_record)|src/error_file)\.cpp|runtime/include/ddp/json\.hpp'
forbid "$code" 'gloo/'                   '(collectives|apps/ddp_bench)/gloo_[a-z_]*\.[ch]pp'
forbid "$code" 'mpi'                     'apps/ddp_bench/(mpi_main\.cpp|worker/mpi_worker\.c)'
forbid "$code" 'nccl|cuda'               "$none"
forbid "$code" 'sodium'                  'rendezvous/link_secret\.cpp'
forbid "$code" 'xxhash'                  'runtime/training/checksum\.cpp'
forbid "$code" 'Eigen/'                  'apps/train/[a-z_]*\.[ch]pp'
forbid "$code" 'catch2/'                 "$none"
exit $bad
