package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// monitored are the monitored programs, and the folders that they are installed from.
var monitored = map[string]struct{ name, namespace, folder string }{
	"proxy":   {"vicinity-proxy", "kube-system", folder},
	"webhook": {"vicinity-webhook", "vicinity-system", folder + "/webhook"},
}

// prometheusRule returns an object for the Prometheus operator with the rules of a file for Prometheus itself.
func prometheusRule(name, namespace, rules string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `# Made from prometheus-rules.yaml: go test ./e2e/manifests -run PrometheusRule -update
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: %s
  namespace: %s
  labels:
    app.kubernetes.io/name: %s
    app.kubernetes.io/component: monitoring
    app.kubernetes.io/part-of: vicinity
spec:
`, name, namespace, name)
	for line := range strings.Lines(rules) {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			text.WriteString(strings.TrimLeft(line, " "))
			continue
		}
		text.WriteString("  " + line)
	}
	return text.String()
}

func TestAPrometheusRuleHasTheRulesOfTheFileForPrometheus(t *testing.T) {
	for program, target := range monitored {
		dir := filepath.Join(folder, "monitoring", program)
		rules, err := os.ReadFile(filepath.Join(dir, "prometheus-rules.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		golden.File(t, filepath.Join(dir, "prometheusrule.yaml"), prometheusRule(target.name, target.namespace, string(rules)))
	}
}

// TestMonitoringIsAComponent parses the added objects strictly with the Prometheus operator's own types.
func TestMonitoringIsAComponent(t *testing.T) {
	for program, target := range monitored {
		text := kubectl(t, "kustomize", withComponent(t, target.folder, filepath.Join(folder, "monitoring", program)))
		var monitor monitoringv1.PodMonitor
		var rule monitoringv1.PrometheusRule
		parseOnly(t, text, monitoringv1.PodMonitorsKind, &monitor)
		parseOnly(t, text, monitoringv1.PrometheusRuleKind, &rule)
		if len(rule.Spec.Groups) == 0 || len(rule.Spec.Groups[0].Rules) < 10 {
			t.Errorf("%s: the rules are %+v", program, rule.Spec)
		}
		if got := monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"]; got != target.name || monitor.Namespace != target.namespace {
			t.Errorf("%s: the PodMonitor in %s selects %s", program, monitor.Namespace, got)
		}
		if program == "proxy" && !monitor.Spec.PodMetricsEndpoints[0].HonorLabels {
			t.Errorf("%s: honorLabels is not set: the pods' namespace would replace that of Services", program)
		}
		relabelings := map[string]string{}
		for _, rule := range monitor.Spec.PodMetricsEndpoints[0].RelabelConfigs {
			if len(rule.SourceLabels) > 0 {
				relabelings[rule.TargetLabel] = string(rule.SourceLabels[0])
			} else {
				relabelings[rule.TargetLabel] = *rule.Replacement
			}
		}
		if relabelings["job"] != target.name || !strings.HasPrefix(relabelings["instance"], "__meta_kubernetes_pod_") {
			t.Errorf("%s: target labels %v; alerts require the job %s", program, relabelings, target.name)
		}
		if !strings.Contains(text, "grafana_dashboard: \"1\"") || !strings.Contains(text, target.name+".json: |") {
			t.Errorf("%s: no dashboard", program)
		}
	}
}

// withComponent returns a folder with a kustomization of manifests and a component.
func withComponent(t *testing.T, resource, component string) string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, path := range []string{resource, component} {
		absolute, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		relative, err := filepath.Rel(dir, absolute)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, relative)
	}
	const format = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents: [%s]\n"
	text := fmt.Sprintf(format, paths[0], paths[1])
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
