{{- define "weft.leftAlone" -}}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson .Values.injection.excludedNamespaces }}}
{{- end }}

{{- define "weft.injecting" -}}
{{ include "weft.asking" . }}
failurePolicy: {{ .Values.injection.failurePolicy }}
reinvocationPolicy: IfNeeded
rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}
{{- end }}

{{- define "weft.validating" -}}
{{ include "weft.asking" . }}
failurePolicy: {{ .Values.validation.failurePolicy }}
rules:
  - apiGroups: [networking.istio.io]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [destinationrules, gateways, serviceentries, sidecars, virtualservices, workloadentries]
    scope: Namespaced
  - apiGroups: [security.istio.io]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [authorizationpolicies, peerauthentications, requestauthentications]
    scope: Namespaced
  - apiGroups: [telemetry.istio.io]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [telemetries]
    scope: Namespaced
{{- end }}
