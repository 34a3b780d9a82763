package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// configzKey is where kube-proxy's /configz has its configuration (since 1.36).
const configzKey = "kubeproxy.config.k8s.io"

// Configz returns what is served as /configz: under one key what kube-proxy serves there, under another our own settings.
func Configz(c *Configuration, own Own, values map[string]string) map[string]any {
	return map[string]any{configzKey: c, ownConfigzKey: own.typed(values)}
}

// Write writes a configuration as a file that Read reads, and the values of our own settings, if there are any.
func Write(path string, c *Configuration, own Own, values map[string]string) error {
	text, err := yaml.Marshal(c)
	if err == nil && len(values) > 0 {
		var ours []byte
		ours, err = yaml.Marshal(own.typed(values))
		text = slices.Concat(text, []byte("---\n"), ours)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the configuration to %s: %w", path, err)
	}
	return nil
}

// CheckProxyName checks a name for the label service.kubernetes.io/service-proxy-name of Services.
func CheckProxyName(name string) error {
	if wrong := validation.IsValidLabelValue(name); len(wrong) > 0 {
		return fmt.Errorf("%q cannot be the value of a label: %s", name, strings.Join(wrong, "; "))
	}
	return nil
}
