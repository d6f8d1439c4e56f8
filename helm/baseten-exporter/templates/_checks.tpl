{{- /* What a schema cannot say, or not in words that help. Nothing is rendered; the first mistake ends it. */ -}}
{{- define "baseten-exporter.checks" -}}
{{- $ := . -}}
{{- range list "replicas" "replicaCount" "autoscaling" -}}
{{- if hasKey $.Values . -}}
{{- fail (printf "%s: there is always one replica, because each would poll everything again: twice the requests against the same rate limit, and every series twice. Take it out; to share the work, install one release per workspace." .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.existingConfigMap.name .Values.config -}}
{{- fail "config and existingConfigMap.name are both set, and only one of them would be used: keep one of the two." -}}
{{- end -}}
{{- include "baseten-exporter.checkKeys" . -}}
{{- if not .Values.existingConfigMap.name -}}
{{- range $index, $workspace := (include "baseten-exporter.config" . | fromYaml).workspaces -}}
{{- include "baseten-exporter.checkWorkspace" (list $ (printf "config.workspaces[%d]" $index) $workspace) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor and podMonitor are both enabled, and everything would be scraped twice: enable one of the two." -}}
{{- end -}}
{{- end -}}

{{- define "baseten-exporter.checkKeys" -}}
{{- with .Values.apiKeys -}}
{{- if and .existingSecret .values -}}
{{- fail "apiKeys.existingSecret and apiKeys.values are both set, and only one of them would be used: keep one of the two." -}}
{{- end -}}
{{- if and .env (not .existingSecret) (not .values) -}}
{{- fail "apiKeys.env takes its values from a Secret, and there is none: name one in apiKeys.existingSecret, or write apiKeys.values." -}}
{{- end -}}
{{- if .values -}}
{{- range $variable, $key := .env -}}
{{- if not (hasKey $.Values.apiKeys.values $key) -}}
{{- fail (printf "apiKeys.env.%s: there is no %s in apiKeys.values." $variable $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $elsewhere := or .Values.extraEnv .Values.extraEnvFrom .Values.extraVolumes -}}
{{- if not (or (include "baseten-exporter.secret" .) $elsewhere) -}}
{{- fail "there is no API key: name a Secret that holds it in apiKeys.existingSecret, or write apiKeys.values." -}}
{{- end -}}
{{- end -}}

{{- /* A workspace's key must be where it says: (list $ path workspace). */ -}}
{{- define "baseten-exporter.checkWorkspace" -}}
{{- $ := index . 0 -}}
{{- $path := index . 1 -}}
{{- with index . 2 -}}
{{- if hasKey . "api_key" -}}
{{- fail (printf "%s.api_key: a ConfigMap is no place for a key. Write api_key_file, and put the key into a Secret, see apiKeys." $path) -}}
{{- end -}}
{{- if and .api_key_env (not $.Values.extraEnvFrom) -}}
{{- $names := keys $.Values.apiKeys.env -}}
{{- range $.Values.extraEnv -}}{{- $names = append $names .name -}}{{- end -}}
{{- if not (has .api_key_env $names) -}}
{{- fail (printf "%s.api_key_env: nothing sets that variable: write it into apiKeys.env or extraEnv." $path) -}}
{{- end -}}
{{- end -}}
{{- $folder := "/etc/baseten-exporter/keys/" -}}
{{- if hasPrefix $folder (toString .api_key_file) -}}
{{- if not (include "baseten-exporter.secret" $) -}}
{{- fail (printf "%s.api_key_file: no Secret is mounted there: name one in apiKeys.existingSecret, or write apiKeys.values." $path) -}}
{{- end -}}
{{- $name := trimPrefix $folder .api_key_file -}}
{{- if and $.Values.apiKeys.values (not (hasKey $.Values.apiKeys.values $name)) -}}
{{- fail (printf "%s.api_key_file: there is no %s in apiKeys.values." $path $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
