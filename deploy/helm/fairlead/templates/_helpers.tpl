{{- define "fairlead.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fairlead.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* k8s-app is what the plain manifest has, the pages of docs/operate and the PodMonitor ask for. */ -}}
{{- define "fairlead.selectorLabels" -}}
k8s-app: {{ include "fairlead.name" . }}
{{- end }}

{{- define "fairlead.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "fairlead.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "fairlead.selectorLabels" . }}
{{- end }}

{{- define "fairlead.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "fairlead.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "fairlead.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "fairlead.configFile" -}}
{{- if .Values.kubeProxy.useConfig }}/var/lib/kube-proxy/config.conf{{ else }}/etc/fairlead/config.yaml{{ end }}
{{- end }}

{{- define "fairlead.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{- /* What is wrong between values, which a schema of each cannot say. */ -}}
{{- define "fairlead.check" -}}
{{- if and (not .Values.apiServer.host) (not .Values.kubeProxy.configMap) }}
{{- fail "apiServer.host or kubeProxy.configMap must be given: the agent cannot reach the API server by its Service, which works only once the agent does" }}
{{- end }}
{{- if and .Values.kubeProxy.useConfig (not .Values.kubeProxy.configMap) }}
{{- fail "kubeProxy.useConfig needs kubeProxy.configMap: the name of the ConfigMap that holds config.conf" }}
{{- end }}
{{- if and (eq (toString .Values.config.mode) "iptables") (not .Values.iptables.enabled) (not .Values.kubeProxy.useConfig) }}
{{- fail "config.mode iptables needs iptables.enabled, and an image with iptables" }}
{{- end }}
{{- if and .Values.podMonitor.enabled (hasPrefix "127." (toString .Values.config.metricsBindAddress)) (not .Values.kubeProxy.useConfig) }}
{{- fail "podMonitor.enabled needs a config.metricsBindAddress that Prometheus can reach, for instance 0.0.0.0:10249" }}
{{- end }}
{{- end }}
