package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// configzKey is the key of kube-proxy's /configz (since 1.36).
const configzKey = "kubeproxy.config.k8s.io"

// Configz returns the content of /configz: one key has what kube-proxy serves there, another our own settings.
func Configz(c *Configuration, vicinity VicinityConfig, values map[string]string) map[string]any {
	return map[string]any{configzKey: c, vicinityConfigzKey: vicinity.document(values)}
}

// ReadConfigz reads the page of Configz, the active configuration of another process, as a file with the path name. The
// process may have another version: one of our settings that this version lacks is skipped if it is off.
func ReadConfigz(name string, page []byte, vicinity VicinityConfig) (*File, error) {
	var documents map[string]json.RawMessage
	err := json.Unmarshal(page, &documents)
	var vicinityValues map[string]any
	if err == nil && documents[vicinityConfigzKey] == nil {
		err = errors.New("the settings of Vicinity are missing")
	}
	if err == nil {
		err = json.Unmarshal(documents[vicinityConfigzKey], &vicinityValues)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", name, err)
	}
	maps.DeleteFunc(vicinityValues, func(field string, value any) bool {
		_, isKnown := vicinity.Fields[field]
		return !isKnown && (value == false || value == "")
	})
	text, err := json.Marshal(vicinityValues)
	file := &File{Path: name, vicinityConfig: vicinity}
	if err == nil {
		err = file.parse(slices.Concat(documents[configzKey], []byte("\n---\n"), text))
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", name, err)
	}
	return file, nil
}

// Write writes a configuration as a file that Read reads, with the values of our own settings, if there are any.
func Write(path string, c *Configuration, vicinity VicinityConfig, values map[string]string) error {
	text, err := yaml.Marshal(c)
	if err == nil && len(values) > 0 {
		var vicinityText []byte
		vicinityText, err = yaml.Marshal(vicinity.document(values))
		text = slices.Concat(text, []byte("---\n"), vicinityText)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write configuration to %s: %w", path, err)
	}
	return nil
}
