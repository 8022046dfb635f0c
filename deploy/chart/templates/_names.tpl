{{- define "weft.suffix" -}}
{{- if ne .Values.revision "default" }}-{{ .Values.revision }}{{ end -}}
{{- end }}

{{- define "weft.control" -}}weft-control{{ include "weft.suffix" . }}{{- end }}
{{- define "weft.node" -}}weft-node{{ include "weft.suffix" . }}{{- end }}
{{- define "weft.service" -}}istiod{{ include "weft.suffix" . }}{{- end }}
{{- define "weft.injector" -}}istio-sidecar-injector{{ include "weft.suffix" . }}{{- end }}

{{- define "weft.validator" -}}
istio-validator-{{ if ne .Values.revision "default" }}{{ .Values.revision }}-{{ end }}{{ .Release.Namespace }}
{{- end }}

{{- define "weft.driver" -}}
{{- if ne .Values.revision "default" }}{{ .Values.revision }}.{{ end }}csi.weft.dev
{{- end }}

{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/part-of: weft
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
istio.io/rev: {{ .Values.revision | quote }}
{{- end }}

{{- define "weft.accounts" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weft.asking" -}}
clientConfig:
  service:
    name: {{ include "weft.service" . }}
    namespace: {{ .Release.Namespace }}
    path: {{ .path }}
    port: 443
admissionReviewVersions: [v1]
sideEffects: None
matchPolicy: Equivalent
timeoutSeconds: 10
{{- end }}
