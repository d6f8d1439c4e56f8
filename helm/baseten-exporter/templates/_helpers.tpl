{{- define "baseten-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "baseten-exporter.fullname" -}}
{{- $name := include "baseten-exporter.name" . -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Not empty when several pods share the work. */ -}}
{{- define "baseten-exporter.sharded" -}}
{{- if gt (int .Values.shards) 1 -}}yes{{- end -}}
{{- end -}}

{{- /* The kind and name of what runs the pods, as kubectl takes it. */ -}}
{{- define "baseten-exporter.workload" -}}
{{- ternary "statefulset" "deployment" (ne (include "baseten-exporter.sharded" .) "") }}/{{ include "baseten-exporter.fullname" . -}}
{{- end -}}

{{- /* The Service has a name of its own where it has no address, since an address cannot be taken away. */ -}}
{{- define "baseten-exporter.service" -}}
{{- include "baseten-exporter.fullname" . }}{{ if include "baseten-exporter.sharded" . }}-shards{{ end -}}
{{- end -}}

{{- /* The port of the Service; without an address it is that of the pods. */ -}}
{{- define "baseten-exporter.port" -}}
{{- ternary .Values.service.port .Values.web.port (eq (include "baseten-exporter.sharded" .) "") -}}
{{- end -}}

{{- define "baseten-exporter.serviceAccount" -}}
{{- $default := ternary (include "baseten-exporter.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $default .Values.serviceAccount.name -}}
{{- end -}}

{{- define "baseten-exporter.configMap" -}}
{{- default (printf "%s-config" (include "baseten-exporter.fullname" .)) .Values.existingConfigMap.name -}}
{{- end -}}

{{- /* The Secret with the API keys; empty when there is none. */ -}}
{{- define "baseten-exporter.secret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- .Values.apiKeys.existingSecret -}}
{{- else if .Values.apiKeys.values -}}
{{- include "baseten-exporter.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{- /* The exporter's config. */ -}}
{{- define "baseten-exporter.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if not (hasKey $config "workspaces") -}}
{{- $everything := dict "models" dict "loops" dict -}}
{{- $key := "/etc/baseten-exporter/keys/api-key" -}}
{{- $_ := set $config "workspaces" (list (dict "name" "default" "api_key_file" $key "discovery" $everything)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "baseten-exporter.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- /* What finds the exporter's pod, and no other of the release. */ -}}
{{- define "baseten-exporter.selector" -}}
app.kubernetes.io/name: {{ include "baseten-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end -}}

{{- /* The labels of every object that is not told otherwise: (list $ more component). */ -}}
{{- define "baseten-exporter.labels" -}}
{{- $ := index . 0 -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_")
  "app.kubernetes.io/name" (include "baseten-exporter.name" $)
  "app.kubernetes.io/instance" $.Release.Name
  "app.kubernetes.io/component" (index . 2)
  "app.kubernetes.io/version" $.Chart.AppVersion
  "app.kubernetes.io/managed-by" $.Release.Service
-}}
{{- toYaml (merge $own (index . 1) $.Values.commonLabels) -}}
{{- end -}}

{{- /* An object's metadata: (dict "root" $ "name" ... ["namespace" "labels" "annotations" "component" ...]). */ -}}
{{- define "baseten-exporter.metadata" -}}
{{- $ := .root -}}
name: {{ .name }}
namespace: {{ default $.Release.Namespace .namespace }}
labels:
  {{- include "baseten-exporter.labels" (list $ (.labels | default dict) (.component | default "exporter")) | nindent 2 }}
{{- with merge dict (.annotations | default dict) $.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* What ServiceMonitor and PodMonitor say of the endpoint: (list $ values). */ -}}
{{- define "baseten-exporter.endpoint" -}}
{{- $ := index . 0 -}}
{{- with index . 1 -}}
port: http
{{- if $.Values.webConfig.tls.enabled }}
scheme: https
tlsConfig:
  {{- merge (deepCopy .tlsConfig) (dict "serverName" (printf "%s.%s.svc" (include "baseten-exporter.service" $) $.Release.Namespace)) | toYaml | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
path: {{ $.Values.web.telemetryPath }}
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
honorLabels: {{ .honorLabels }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}
