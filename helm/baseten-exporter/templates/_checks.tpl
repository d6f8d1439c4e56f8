{{- /* What a schema cannot say, or not in words that help. Nothing is rendered; the first mistake ends it. */ -}}
{{- define "baseten-exporter.checks" -}}
{{- $ := . -}}
{{- range list "replicas" "replicaCount" "autoscaling" -}}
{{- if hasKey $.Values . -}}
{{- fail (printf "%s: there is always one replica, because each would poll everything again: twice the requests against the same rate limit, and every series twice. Take it out; to share the work, set shards." .) -}}
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
{{- include "baseten-exporter.checkShards" . -}}
{{- include "baseten-exporter.checkWebConfig" . -}}
{{- range $name := list "serviceMonitor" "podMonitor" -}}
{{- include "baseten-exporter.checkMonitor" (list $ $name) -}}
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

{{- define "baseten-exporter.checkShards" -}}
{{- if include "baseten-exporter.sharded" . -}}
{{- if ne .Values.service.type "ClusterIP" -}}
{{- fail (printf "service.type: through a %s one would get a shard by chance, and with shards every one has to be scraped: leave it at ClusterIP." .Values.service.type) -}}
{{- end -}}
{{- if gt (len (include "baseten-exporter.fullname" .)) 52 -}}
{{- fail (printf "%s: a StatefulSet's name has at most 52 letters, since its pods' labels add to it: set fullnameOverride." (include "baseten-exporter.fullname" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baseten-exporter.checkWebConfig" -}}
{{- with .Values.webConfig -}}
{{- /* Not in the schema, whose complaint would show the password. */ -}}
{{- range $user, $hash := .basicAuthUsers -}}
{{- if not (regexMatch `^\$2[aby]\$(0[4-9]|1[0-8])\$[./A-Za-z0-9]{53}$` $hash) -}}
{{- fail (printf "webConfig.basicAuthUsers.%s: that is no bcrypt hash: write what `htpasswd -nBC 10 %s` prints after the colon." $user $user) -}}
{{- end -}}
{{- end -}}
{{- if .existingSecret -}}
{{- $unused := dict "headers" .headers "basicAuthUsers" .basicAuthUsers "tls.clientAuthType" .tls.clientAuthType "tls.clientAllowedSans" .tls.clientAllowedSans "tls.clientCa.existingSecret" .tls.clientCa.existingSecret -}}
{{- range $name, $value := $unused -}}
{{- if $value -}}
{{- fail (printf "webConfig.existingSecret holds the whole web-config.yaml, so webConfig.%s would not be used: keep one of the two." $name) -}}
{{- end -}}
{{- end -}}
{{- else if and .tls.enabled (not .tls.existingSecret) -}}
{{- fail "webConfig.tls.enabled: there is no certificate: name a Secret with tls.crt and tls.key in webConfig.tls.existingSecret." -}}
{{- end -}}
{{- with .tls -}}
{{- if and (not .enabled) (or .existingSecret .clientAuthType .clientCa.existingSecret .clientAllowedSans) -}}
{{- fail "webConfig.tls is set but not enabled, and pages would be served in clear: set webConfig.tls.enabled." -}}
{{- end -}}
{{- if ne (empty .clientAuthType) (empty .clientCa.existingSecret) -}}
{{- fail "webConfig.tls.clientAuthType and webConfig.tls.clientCa.existingSecret need one another: what to ask of clients, and who signs their certificates." -}}
{{- end -}}
{{- if and .clientAllowedSans (ne .clientAuthType "RequireAndVerifyClientCert") -}}
{{- fail "webConfig.tls.clientAllowedSans: without a certificate there is no name to compare: set webConfig.tls.clientAuthType to RequireAndVerifyClientCert." -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A monitor must have what the exporter asks for: (list $ name). */ -}}
{{- define "baseten-exporter.checkMonitor" -}}
{{- $ := index . 0 -}}
{{- $name := index . 1 -}}
{{- with index $.Values $name -}}
{{- if .enabled -}}
{{- if and .tlsConfig (not $.Values.webConfig.tls.enabled) -}}
{{- fail (printf "%s.tlsConfig: there is no TLS: set webConfig.tls.enabled." $name) -}}
{{- end -}}
{{- if and $.Values.webConfig.basicAuthUsers (not .basicAuth) -}}
{{- fail (printf "webConfig.basicAuthUsers has every scrape ask for a password, and there is none in %s.basicAuth." $name) -}}
{{- end -}}
{{- if and (eq $.Values.webConfig.tls.clientAuthType "RequireAndVerifyClientCert") (not (and .tlsConfig.cert .tlsConfig.keySecret)) -}}
{{- fail (printf "webConfig.tls.clientAuthType has every scrape ask for a certificate, and there is none in %s.tlsConfig: set cert and keySecret." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
