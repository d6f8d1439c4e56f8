{{- /* The Secret with web-config.yaml; empty when pages are served in clear to everybody. */ -}}
{{- define "baseten-exporter.webSecret" -}}
{{- with .Values.webConfig -}}
{{- if .existingSecret -}}
{{- .existingSecret -}}
{{- else if or .tls.enabled .headers .basicAuthUsers -}}
{{- include "baseten-exporter.fullname" $ }}-web
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The web config. Its files lie beside it. */ -}}
{{- define "baseten-exporter.webConfig" -}}
{{- $config := dict -}}
{{- with .Values.webConfig -}}
{{- with .tls -}}
{{- if .enabled -}}
{{- $tls := dict "cert_file" "tls.crt" "key_file" "tls.key" "min_version" .minVersion -}}
{{- if .clientAuthType -}}
{{- $_ := set $tls "client_auth_type" .clientAuthType -}}
{{- $_ := set $tls "client_ca_file" "client-ca.crt" -}}
{{- end -}}
{{- with .clientAllowedSans -}}{{- $_ := set $tls "client_allowed_sans" . -}}{{- end -}}
{{- $_ := set $config "tls_server_config" $tls -}}
{{- end -}}
{{- end -}}
{{- with .headers -}}{{- $_ := set $config "http_server_config" (dict "headers" .) -}}{{- end -}}
{{- with .basicAuthUsers -}}{{- $_ := set $config "basic_auth_users" . -}}{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "baseten-exporter.scheme" -}}
{{- ternary "https" "http" .Values.webConfig.tls.enabled -}}
{{- end -}}

{{- /* What a client needs to be let in: `certificate`, `password`, `unknown` with a file we do not see, or nothing. */ -}}
{{- define "baseten-exporter.needs" -}}
{{- with .Values.webConfig -}}
{{- if .existingSecret -}}
unknown
{{- else if eq .tls.clientAuthType "RequireAndVerifyClientCert" -}}
certificate
{{- else if .basicAuthUsers -}}
password
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A probe as the pod can pass it: over HTTPS, or where it lacks what clients need, by connecting only: (list $ probe). */ -}}
{{- define "baseten-exporter.probe" -}}
{{- $ := index . 0 -}}
{{- $probe := deepCopy (index . 1) -}}
{{- with $probe.httpGet -}}
{{- $needs := include "baseten-exporter.needs" $ -}}
{{- if or (eq $needs "certificate") (and $needs (not .httpHeaders)) -}}
{{- $_ := set $probe "tcpSocket" (dict "port" .port) -}}
{{- $_ := unset $probe "httpGet" -}}
{{- else if $.Values.webConfig.tls.enabled -}}
{{- $_ := set . "scheme" "HTTPS" -}}
{{- end -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end -}}
