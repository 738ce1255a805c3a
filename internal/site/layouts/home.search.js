{{- /* The text of every page, cut at its headings. */ -}}
{{- $sections := slice -}}
{{- range site.Pages -}}
  {{- $title := partial "title.html" . -}}
  {{- $address := strings.TrimPrefix "/" (partial "address.html" .) -}}
  {{- $content := replaceRE ` <a class="anchor".*?</a>` "" .Content -}}
  {{- range after 1 (split $content "<h") -}}
    {{- range findRESubmatch `(?s)^[1-6] id="([^"]*)">(.*?)</h[1-6]>(.*)$` . -}}
      {{- $heading := index . 2 | plainify | htmlUnescape -}}
      {{- $text := index . 3 | plainify | htmlUnescape | replaceRE `\s+` " " | strings.TrimSpace -}}
      {{- $sections = $sections | append (dict "address" (printf "%s#%s" $address (index . 1)) "title" $title "heading" $heading "text" $text) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
searchIndex({{ $sections | jsonify }})
