{{- /* The exporter's pod, for the Deployment and the StatefulSet. */ -}}
{{- define "baseten-exporter.pod" -}}
metadata:
  labels:
    {{- include "baseten-exporter.labels" (list . .Values.podLabels "exporter") | nindent 4 }}
  {{- $checksums := dict }}
  {{- if not .Values.existingConfigMap.name }}
  {{- $_ := set $checksums "checksum/config" (include "baseten-exporter.config" . | sha256sum) }}
  {{- end }}
  {{- if and .Values.apiKeys.env .Values.apiKeys.values }}
  {{- $_ := set $checksums "checksum/keys" (toYaml .Values.apiKeys.values | sha256sum) }}
  {{- end }}
  {{- with merge $checksums .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "baseten-exporter.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  containers:
    - name: exporter
      image: {{ include "baseten-exporter.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - run
        - --config.file=/etc/baseten-exporter/config/config.yaml
        - --web.listen-address=:{{ .Values.web.port }}
        - --web.telemetry-path={{ .Values.web.telemetryPath }}
        {{- if .Values.web.enableLifecycle }}
        - --web.enable-lifecycle
        {{- end }}
        {{- if include "baseten-exporter.webSecret" . }}
        - --web.config.file=/etc/baseten-exporter/web/web-config.yaml
        {{- end }}
        {{- if include "baseten-exporter.sharded" . }}
        - --shard=$(POD_NAME)
        - --total-shards={{ .Values.shards }}
        {{- end }}
        - --log.level={{ .Values.log.level }}
        - --log.format={{ .Values.log.format }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .Values.apiKeys.env .Values.extraEnv (include "baseten-exporter.sharded" .) }}
      env:
        {{- if include "baseten-exporter.sharded" . }}
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- end }}
        {{- range $variable, $key := .Values.apiKeys.env }}
        - name: {{ $variable }}
          valueFrom:
            secretKeyRef:
              name: {{ include "baseten-exporter.secret" $ }}
              key: {{ $key }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ .Values.web.port }}
          protocol: TCP
      {{- range $probe := list "livenessProbe" "readinessProbe" "startupProbe" }}
      {{- with index $.Values $probe }}
      {{ $probe }}:
        {{- include "baseten-exporter.probe" (list $ .) | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: config
          mountPath: /etc/baseten-exporter/config
          readOnly: true
        {{- if include "baseten-exporter.secret" . }}
        - name: keys
          mountPath: /etc/baseten-exporter/keys
          readOnly: true
        {{- end }}
        {{- if include "baseten-exporter.webSecret" . }}
        - name: web
          mountPath: /etc/baseten-exporter/web
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "baseten-exporter.configMap" . }}
        {{- if .Values.existingConfigMap.name }}
        items:
          - key: {{ .Values.existingConfigMap.key }}
            path: config.yaml
        {{- end }}
    {{- with include "baseten-exporter.secret" . }}
    - name: keys
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with include "baseten-exporter.webSecret" . }}
    - name: web
      projected:
        defaultMode: 0440
        sources:
          - secret:
              name: {{ . }}
          {{- with $.Values.webConfig.tls.existingSecret }}
          - secret:
              name: {{ . }}
              items:
                - {key: tls.crt, path: tls.crt}
                - {key: tls.key, path: tls.key}
          {{- end }}
          {{- with $.Values.webConfig.tls.clientCa }}
          {{- if .existingSecret }}
          - secret:
              name: {{ .existingSecret }}
              items:
                - {key: {{ .key }}, path: client-ca.crt}
          {{- end }}
          {{- end }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $field := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" "hostAliases" "dnsConfig" }}
  {{- with index $.Values $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}
