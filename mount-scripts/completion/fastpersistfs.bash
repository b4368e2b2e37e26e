# bash completion for fastpersistfs and the programs that come with it: what their --help says.

# _fastpersistfs_table PROGRAM [VERB]: a line for each option, argument and verb: its name, a tab, what it takes with
# the character between them (" SIZE", "=on|off").
_fastpersistfs_table() {
  command "$@" --help 2>/dev/null | awk -F '  +' '/^  [^ ]/ {
    takes = match($2, /[= ][^ ,-][^ ]*$/) ? substr($2, RSTART) : ""
    count = split(substr($2, 1, length($2) - length(takes)), names, ", ")
    for (i = 1; i <= count; i++) print names[i] "\t" takes
  }'
}

# What the option $1 of the table takes.
_fastpersistfs_takes() { awk -F '\t' -v name="$1" '$1 == name { print $2; exit }' <<<"$table"; }

# What the table has for the argument at the place $1.
_fastpersistfs_argument() {
  awk -F '\t' -v place="$1" '!/^-/ && (++n == place || $1 ~ /[.][.][.]$/) { print $2 ? $2 : $1; exit }' <<<"$table"
}

# The words that begin with $2 and may stand where the help says $1.
_fastpersistfs_words() {
  case $1 in
    options) compgen -W "$(awk -F '\t' '/^-/ { print $1 ($2 ~ /^=/ ? "=" : "") }' <<<"$table")" -- "$2" ;;
    mount-options)
      compgen -W "$(awk -F '\t' '/^--/ && !/^--(foreground|help|version)/ {
        print substr($1, 3) ($2 ~ /^=/ ? "=" : "") }' <<<"$table")" -- "$2"
      ;;
    verbs) compgen -W "$(awk '!/^-/ { print $1 }' <<<"$table")" -- "$2" ;;
    MOUNTPOINT) compgen -W "$(findmnt -rno TARGET -t fuse.fastpersistfs)" -- "$2" || compgen -d -- "$2" ;;
    DIR | DIRS) compgen -d -- "$2" ;;
    FILE | PATH* | DEVICE) compgen -f -- "$2" ;;
    *\|*) compgen -W "$(tr '|' '\n' <<<"$1" | sed 's/\[.*//; /^[A-Z]/d')" -- "$2" ;;
  esac
}

_fastpersistfs() {
  # Words end at spaces here, and not at "=" and ":" as readline's do.
  local line=${COMP_LINE:0:COMP_POINT} word before call table given takes='' place=1 what prefix='' item
  word=${line##* }
  read -ra before <<<"${line%"$word"}"
  call=("${before[0]}") before=("${before[@]:1}")
  if [[ ${call[0]##*/} = fpfs && ${#before[@]} -gt 0 ]]; then call+=("${before[0]}") before=("${before[@]:1}"); fi
  table=$(_fastpersistfs_table "${call[@]}")
  # Its help has the arguments in the usage only.
  [[ ${call[0]##*/} != fastpersistfs ]] || table=$'DIRS\t\nMOUNTPOINT\tDIR\n-o\t OPTIONS\n'$table
  for given in "${before[@]}"; do
    if [[ $given = -* ]]; then
      takes=$(_fastpersistfs_takes "$given")
    else
      [[ $takes = ' '* ]] || place=$((place + 1))
      takes=''
    fi
  done

  if [[ $takes = ' '* ]]; then
    what=${takes# }
  elif [[ $word = --*=* ]]; then
    what=$(_fastpersistfs_takes "${word%%=*}") prefix=${word%%=*}=
  elif [[ $word = -* ]]; then
    what=options
  elif [[ ${call[*]##*/} = fpfs ]]; then
    what=verbs
  else
    what=$(_fastpersistfs_argument "$place")
  fi
  if [[ $what = OPTIONS ]]; then
    item=${word##*,} prefix=${word%"${word##*,}"} what=mount-options
    if [[ $item = *=* ]]; then what=$(_fastpersistfs_takes "--${item%%=*}") prefix+=${item%%=*}=; fi
  fi
  what=${what#[= ]} what=${what%...}
  case $what in
    DIRS) prefix=${word%"${word##*:}"} ;;&
    DIR* | FILE | PATH* | DEVICE | MOUNTPOINT) compopt -o filenames 2>/dev/null ;;
  esac
  mapfile -t COMPREPLY < <(_fastpersistfs_words "$what" "${word#"$prefix"}")
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
  # readline has the word since its last "=" or ":".
  item=${word%"${word##*[=:]}"}
  COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
  COMPREPLY=("${COMPREPLY[@]#"$item"}")
}
complete -F _fastpersistfs fpfs mkfs.fastpersistfs fsck.fastpersistfs fastpersistfs setup-nvme
