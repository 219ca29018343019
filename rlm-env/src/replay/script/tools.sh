# Recorded replies of root tools: the printed text, by the arguments of the call.
__rlm_recorded() {
  local tool=$1 asked form=text key='' text part literal='' is_text='' request='' file taken
  shift
  [[ $tool == llm_batch ]] && is_text=1
  if [[ $tool == rlm_query* ]]; then
    __rlm_asked "$@"
    set --
  fi
  while (($#)); do
    part=$1
    shift
    if [[ -z $literal ]]; then
      case $part in
        --) literal=1; continue ;;
        --str) is_text=1; continue ;;
        --json-output) form=json; continue ;;
        --json=*) request=${part#--json=}; continue ;;
        --json)
          if (($#)) && [[ $1 != -[[:alpha:]-]* ]]; then request=$1; shift; else IFS= read -r -d '' request || :; fi
          continue ;;
        --lines)
          if [[ $tool == llm_batch ]]; then
            while IFS= read -r part || [[ -n $part ]]; do
              [[ $part == *[![:space:]]* ]] && key+=$part$'\x1f'
            done
            continue
          fi ;;
        --file|--file=*)
          if [[ $tool == llm_batch ]]; then
            if [[ $part == --file ]]; then part=${1-}; shift; else part=${part#--file=}; fi
            IFS= read -r -d '' text <"$part" || :
            key+=$text$'\x1f'
            continue
          fi ;;
        @?*)
          if [[ $tool != llm_batch ]]; then
            IFS= read -r -d '' part <"${part#@}" || :
          fi ;;
      esac
    fi
    [[ -z $is_text ]] && __rlm_compact part
    key+=$part$'\x1f'
  done
  if [[ -z $key && -z $request && $tool != rlm_query* && ! -t 0 ]]; then
    IFS= read -r -d '' text || :
    if [[ $text == *[![:space:]]* ]]; then
      if [[ $tool == llm_batch ]]; then key=${text%$'\n'}$'\x1f'; else request=$text; fi
    fi
  fi
  if [[ -n $request ]]; then
    __rlm_compact request
    key=$'\x1e'$request
  fi
  for file in "$__rlm_answers/$tool".*.key; do
    [[ -e $file ]] || continue
    while IFS= read -r -d $'\x1d' asked; do
      if [[ $asked == "$key" ]]; then
        taken=1
        if mkdir "${file%.key}.taken" 2>/dev/null; then
          file=${file%.key}
          if [[ -e $file.error ]]; then
            cat "$file.error" >&2
            return 1
          fi
          if [[ $form == nul ]]; then
            IFS= read -r -d '' text <"$file.nul" || :
            printf %s "${text%$'\n'}" | tr '\036' '\000'
          else
            cat "$file.$form"
          fi
          [[ ! -e $file.unanswered ]]
          return
        fi
      fi
    done <"$file"
  done
  if [[ -n ${taken-} ]]; then
    printf 'Error: this call of %s has no recorded reply left\n' "$tool" >&2
  else
    key=${key//$'\x1f'/, }
    printf 'Error: this call of %s is not in the recording: %.200s\n' "$tool" "${key%, }" >&2
  fi
  return 1
}
# The key and the form of a call of rlm_query or rlm_query_batch: its questions, files and options, each in one way.
__rlm_asked() {
  local name value literal='' lines=''
  local option='^--?[[:alpha:]][[:alnum:]_-]*$'
  local -a questions=() files=()
  local -A options=()
  while (($#)); do
    name=${1%%=*}
    if [[ -n $literal || ! ( $1 == -- || $1 == -0 || $name =~ $option ) ]]; then
      questions+=("$1")
      shift
      continue
    fi
    case $name in
      --) literal=1 ;;
      --json) form=json options[json]=true ;;
      --lines) lines=1 ;;
      -0|--null) form=nul ;;
      *)
        if [[ $1 == *=* ]]; then value=${1#*=}; else shift; value=${1-}; fi
        case $name in
          --file) files+=("$value") ;;
          --data) __rlm_compact value; options[data]=$value ;;
          --timeout|--share)
            [[ $value == .* ]] && value=0$value
            if [[ $value == *.* ]]; then
              while [[ $value == *0 ]]; do value=${value%0}; done
              value=${value%.}
            fi
            options[${name#--}]=$value ;;
          *) options[${name#--}]=$value ;;
        esac ;;
    esac
    (($#)) && shift
  done
  if [[ $tool == rlm_query ]]; then
    files+=("${questions[@]:1}")
    questions=("${questions[@]:0:1}")
  elif [[ -n $lines ]]; then
    while IFS= read -r value || [[ -n $value ]]; do
      [[ $value == *[![:space:]]* ]] && questions+=("${value%$'\r'}")
    done
  fi
  for value in "${questions[@]}"; do key+=$value$'\x1f'; done
  for value in "${files[@]}"; do
    if [[ $value == - ]]; then
      IFS= read -r -d '' value || :
      options[text]=$value
      continue
    fi
    [[ $value == /* ]] || value=$PWD/$value
    value=$value/
    while [[ $value == *//* ]]; do value=${value//\/\//\/}; done
    while [[ $value == */./* ]]; do value=${value//\/.\//\/}; done
    value=${value%/}
    if [[ $value == "$__rlm_root" ]]; then value=; else value=${value#"$__rlm_root/"}; fi
    key+=--file=$value$'\x1f'
  done
  for name in text data model language max-turns timeout share json; do
    [[ -n ${options[$name]+set} ]] && key+=--$name=${options[$name]}$'\x1f'
  done
  return 0
}
# Removes white space between JSON tokens, and the quotes of a string, if the text looks like JSON.
__rlm_compact() {
  local __rlm_rest=${!1} __rlm_text=''
  local __rlm_string='^[[:space:]]*"([^"\]*)"[[:space:]]*$' __rlm_opens='^[[:space:]]*[[{]'
  local __rlm_part='^([^"[:space:]]*)("([^"\]|\\.)*"|[[:space:]]+)'
  if [[ $__rlm_rest =~ $__rlm_string ]]; then
    printf -v "$1" %s "${BASH_REMATCH[1]}"
  elif [[ $__rlm_rest =~ $__rlm_opens ]]; then
    while [[ $__rlm_rest =~ $__rlm_part ]]; do
      __rlm_text+=${BASH_REMATCH[1]}
      [[ ${BASH_REMATCH[2]} == \"* ]] && __rlm_text+=${BASH_REMATCH[2]}
      __rlm_rest=${__rlm_rest:${#BASH_REMATCH[0]}}
    done
    printf -v "$1" %s "$__rlm_text$__rlm_rest"
  fi
}
export -f __rlm_recorded __rlm_asked __rlm_compact
