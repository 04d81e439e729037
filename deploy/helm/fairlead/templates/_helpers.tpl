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

{{- /* The plain manifest has the label k8s-app. The pages of docs/operate and the PodMonitor select by it. */ -}}
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

{{- /* Checks combinations of values, which a schema of single values cannot check. */ -}}
{{- define "fairlead.check" -}}
{{- if and (not .Values.apiServer.host) (not .Values.kubeProxy.configMap) }}
{{- fail "apiServer.host or kubeProxy.configMap must be set: the agent cannot reach the API server through its Service, which works only once the agent works" }}
{{- end }}
{{- if and .Values.kubeProxy.useConfig (not .Values.kubeProxy.configMap) }}
{{- fail "kubeProxy.useConfig needs kubeProxy.configMap: the name of the ConfigMap that contains config.conf" }}
{{- end }}
{{- if and (eq (toString .Values.config.mode) "iptables") (not .Values.iptables.enabled) (not .Values.kubeProxy.useConfig) }}
{{- fail "config.mode iptables needs iptables.enabled, and an image with iptables" }}
{{- end }}
{{- if and (not .Values.kubeProxy.useConfig) (not (regexMatch ":[0-9]+$" (toString .Values.config.healthzBindAddress))) }}
{{- fail "config.healthzBindAddress must be an address and a port, for instance 0.0.0.0:10256: the probes use it" }}
{{- end }}
{{- if and .Values.podMonitor.enabled (regexMatch "^(127\\.|\\[::1\\]|localhost:)|:0$|^$" (toString .Values.config.metricsBindAddress)) (not .Values.kubeProxy.useConfig) }}
{{- fail "podMonitor.enabled needs a config.metricsBindAddress that Prometheus can reach, for instance 0.0.0.0:10249" }}
{{- end }}
{{- end }}

{{- /* The port of an address in the config, or the default where the config is kube-proxy's. */ -}}
{{- define "fairlead.port" -}}
{{- if .root.Values.kubeProxy.useConfig }}{{ .default }}{{ else }}{{ regexFind "[0-9]+$" (toString .address) }}{{ end }}
{{- end }}

{{- /* The address that the kubelet probes: 127.0.0.1 unless the agent listens on one address only. */ -}}
{{- define "fairlead.probe" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (toString .Values.config.healthzBindAddress) "" | trimPrefix "[" | trimSuffix "]" }}
{{- if or .Values.kubeProxy.useConfig (has $host (list "" "0.0.0.0" "::")) }}{{ $host = "127.0.0.1" }}{{ end -}}
port: {{ include "fairlead.port" (dict "root" . "address" .Values.config.healthzBindAddress "default" 10256) }}, host: {{ $host | quote }}
{{- end }}

{{- /* --dns-address needs a port below 1024; --dns-intercept also needs NET_RAW. */ -}}
{{- define "fairlead.capabilities" -}}
{{- $args := join " " .Values.extraArgs }}
{{- $dns := contains "--dns-address" $args -}}
NET_ADMIN{{ if or .Values.iptables.enabled $dns }}, NET_RAW{{ end }}{{ if $dns }}, NET_BIND_SERVICE{{ end }}
{{- end }}
