#!/bin/bash
# Checks the arrows of ARCHITECTURE.md against what the sources include. $1 is the repository.
# Prints each include that points the wrong way; the exit code is 1 if there is one.
set -u
cd "$1" || exit 2
bad=0

# forbid FOLDERS PATTERN EXCEPT: no file in FOLDERS may include PATTERN, except files that match EXCEPT.
forbid() {
  local found
  found=$(grep -rnP --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.c' \
    "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($2)" $1 | grep -vE "^($3):")
  if [ -n "$found" ]; then
    printf '%s\n' "$found"
    bad=1
  fi
}
none='-'

# The arrows between folders.
forbid rendezvous   'apps/|launcher/|runtime/|collectives/|ddp/'                          "$none"
forbid collectives  'apps/|launcher/|runtime/|ddp/(?!backend\.h)'                         "$none"
forbid launcher     'apps/|runtime/|collectives/|ddp/'                                    "$none"
forbid runtime      'apps/|launcher/'                                                     "$none"
# libddp knows nothing of its training kit, which sees libddp's installed headers and headers that depend on nothing.
forbid 'rendezvous launcher collectives runtime' 'runtime/training_kit/|ddp/(c/)?training[./]' 'runtime/training_kit/.*'
alone_headers='collectives/(vector_unit|element_types|float16)\.hpp|runtime/api/arguments\.hpp'
forbid runtime/training_kit "(?!$alone_headers|runtime/training_kit/)(rendezvous|collectives|runtime)/"  "$none"
forbid 'collectives/vector_unit.hpp collectives/element_types.hpp collectives/float16.hpp runtime/api/arguments.hpp' \
  '(rendezvous|collectives|runtime)/'                                                     "$none"
forbid 'apps/train apps/examples' 'rendezvous/|launcher/|collectives/|runtime/'           "$none"
# The control half of rendezvous belongs to the launcher: libddp links the store half only.
forbid 'collectives runtime' 'rendezvous/(membership|link|coordinator|journal|etcd)/'                "$none"
# Installed headers stand alone.
forbid 'runtime/include runtime/training_kit/include' 'rendezvous/|collectives/|runtime/'   "$none"

# The arrows inside a folder: each room lists all rooms of its folder that it may include.
# only FOLDER ROOM ALLOWED...: files in FOLDER/ROOM may include ROOM itself and the allowed rooms, but no other of FOLDER.
# A README of the room that says "other folders of ..., but ..." names the allowed rooms.
only() {
  local folder=$1 room=$2 others='' said
  said=$(sed -n '/\*\*Must not include:\*\*.*other folder.* but /,/^$/p' "$folder/$room/README.md")
  for other in "${@:3}"; do
    if [ -n "$said" ] && [[ $other != include && $said != *"\`$other\`"* ]]; then
      echo "$folder/$room/README.md does not say that it may include $other"
      bad=1
    fi
  done
  shift 2
  for other in "$folder"/*/; do
    other=$(basename "$other")
    case " $room $* " in *" $other "*) ;; *) others+="|$folder/$other/" ;; esac
  done
  [ -z "$others" ] || forbid "$folder/$room" "${others#|}" "$none"
}
# alone FOLDER ROOM [ALSO]: files in FOLDER/ROOM may include nothing else of FOLDER, nor of its other rooms, but ALSO.
alone() { forbid "$1/$2" "$1/(?!$2/${3:+|$3})" "$none"; }
only rendezvous base
only rendezvous kept         base
only rendezvous net          base
only rendezvous process_manager  base net
only rendezvous store        base net
only rendezvous machine      base
only rendezvous wire         base
only rendezvous membership   base net
only rendezvous link         base net membership wire
only rendezvous journal      base net
only rendezvous etcd         base net link journal
only rendezvous coordinator  base net store membership link journal wire
alone rendezvous/net addresses   asio
alone rendezvous/etcd tls
alone rendezvous/coordinator core

only launcher text
only launcher placement
only launcher platform       text
only launcher config         text placement
only launcher process
only launcher guardian       process
only launcher report         text config
only launcher output         text config
only launcher preload        config process placement
only launcher local          text placement
only launcher diagnosis      process output text local
only launcher coordination   config process guardian local
only launcher hosts          config process output text
only launcher agent          config process guardian preload output report local diagnosis coordination
alone launcher/hosts wire
forbid launcher/diagnosis/stacks 'launcher/(?!diagnosis/stacks/|text/)'                     "$none"
alone launcher/diagnosis timers
forbid launcher/local/page 'launcher/(?!local/|text/)'                                      "$none"
forbid launcher/output/trace 'launcher/(?!output/trace/|text/)'                             "$none"

only collectives gloo
only collectives gpu
only collectives host
only collectives/host memory
only collectives/host nodes       memory
only collectives/host operations  memory nodes

only runtime base
only runtime collective      include base
only runtime device          include base collective
only runtime diagnosis       include base collective
only runtime group           include base collective device diagnosis
only runtime session         include base collective device diagnosis group
only runtime recovery        include base collective device group
only runtime spawn           include base
only runtime training        include base collective device group
only runtime api             include base collective device diagnosis group recovery session spawn training
alone runtime/session identity
only runtime/training tensor_file
only runtime/training hooks
only runtime/training ddp          hooks
only runtime/training checkpoint   tensor_file
only runtime/training_kit optim
only runtime/training_kit batch_norm

only apps/ddprun commands    options
only apps/ddprun manual      options
only apps/ddprun options     manual
# options/options.cpp prints the manual, which knows only what an option is.
forbid apps/ddprun/manual 'apps/ddprun/options/(arguments|declaration|(given|log|node)_options|options)\.hpp'  "$none"
only apps/ddp_bench contenders
only apps/ddp_bench store
only apps/ddp_bench collectives  contenders
only apps/ddp_bench steps
only apps/ddp_bench worker

# named FOLDER PAGE: the page names each room of FOLDER.
named() {
  local room
  for room in "$1"/*/; do
    room=$(basename "$room")
    grep -qE "[\`/]$room[\`/]" "$2" || { echo "$2 does not name $1/$room"; bad=1; }
  done
}
named rendezvous rendezvous/README.md
for folder in launcher rendezvous collectives runtime runtime/training runtime/training_kit; do named "$folder" ARCHITECTURE.md; done

# Each third-party library is included only where this says so.
code='apps launcher rendezvous collectives runtime'
forbid "$code" 'CLI/'                    'apps/(train/options|ddp_store/main|ddp_bench/(main|[a-z]+/(mpi_main|command)))\.cpp'
forbid "$code" 'boost/'                  'rendezvous/(net/asio\.[ch]pp|etcd/http_answer\.cpp)|launcher/local/page/http_session\.cpp'
forbid "$code" '(spdlog|fmt)/'           'launcher/output/log\.cpp'
forbid "$code" 'nlohmann/'               'apps/(ddp_store/main\.cpp|ddp_bench/print\.hpp)|rendezvous/(base/shallow_json\.hpp|etcd/messages\.cpp)|launcher/(local/job_answers|report/(error_file|issue_report)|diagnosis/stacks/frames)\.cpp|rendezvous/wire/(declared_json\.hpp|json_text\.cpp)|runtime/(training/(tensor_file/(json_form|safetensors)|checkpoint/record)|base/error_file)\.cpp'
forbid "$code" 'gloo/'                   '(collectives/gloo/[a-z_]*|apps/ddp_bench/contenders/gloo_contender)\.[ch]pp'
forbid "$code" 'mpi'                     'apps/ddp_bench/(collectives/mpi_main\.cpp|worker/mpi_worker\.c)'
forbid "$code" 'nccl|cuda'               "$none"
forbid "$code" 'sodium'                  'rendezvous/(membership/(secret|cipher)|etcd/base64)\.cpp'
forbid "$code" 'xxhash'                  'runtime/training/tensor_file/checksum\.cpp|rendezvous/journal/journal_format\.cpp'
forbid "$code" 'utf8'                    'rendezvous/link/printable\.cpp'
forbid "$code" 'Eigen/'                  'apps/train/([a-z]*/)?[a-z_]*\.[ch]pp'
forbid "$code" 'catch2/'                 "$none"

# A program's compiler flags and its locale change what is inlined into the program: only libddp looks for NaN and
# infinity, and numbers become text and are read in one way everywhere.
# absent FOLDERS PATTERN EXCEPT: no file in FOLDERS may have PATTERN, except files that match EXCEPT.
absent() {
  local found
  found=$(grep -rnP --include='*.hpp' --include='*.cpp' --include='*.h' "$2" $1 | grep -vE "^($3):")
  if [ -n "$found" ]; then
    printf '%s\n' "$found"
    bad=1
  fi
}
absent 'runtime/include runtime/training_kit/include' '^(?!\s*//).*(std::is(nan|inf|finite)\b|printf\(.*%[-+.0-9]*[efg]|std::(sto|strto)(d|f|ld)\b)' "$none"
# What others wrote is read in one place, which refuses JSON that is nested deeply: the library copies and writes it by
# recursion.
absent "$code" 'json::(parse|accept)\(' 'rendezvous/base/shallow_json\.cpp'
library='collectives rendezvous/base rendezvous/kept rendezvous/machine rendezvous/net rendezvous/process_manager rendezvous/store rendezvous/wire'
absent "$library runtime" 'std::[io]?(string|f)stream'  'rendezvous/base/(text_stream|check)\.hpp|runtime/(training_kit/)?include/.*'

# The Python package imports nothing but these: Python's own library, and cloudpickle if it is there. The program of its
# workers runs as a script, before they know where the package is.
own='__future__|_pickle|collections|contextlib|ctypes|dataclasses|fcntl|functools|importlib|io|json|os|pickle|runpy|signal|struct|subprocess|sys|sysconfig|tempfile|threading|time|traceback|types|typing'
check_imports() {
  local found
  found=$(grep -nPH "^\s*(from|import) +(?!($1)\b)" "${@:2}")
  if [ -n "$found" ]; then
    printf '%s\n' "$found"
    bad=1
  fi
}
mapfile -t modules < <(ls runtime/python/ddprun/*.py | grep -v /_kubeflow.py)
check_imports "$own|cloudpickle|ddprun" "${modules[@]}"
check_imports "$own|atexit|datetime|ssl|urllib" runtime/python/ddprun/_kubeflow.py  # imported where it is used
check_imports "$own|cloudpickle" runtime/python/ddprun/_worker.py
exit $bad
