package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Print writes a value for machines; format is "json" or "yaml". Characters that would control a terminal are escaped,
// without changing the value.
func Print(w io.Writer, format string, value any) error {
	text, err := encode(value, "")
	if err != nil {
		return err
	}
	if format == "yaml" {
		converted, err := toYAML(text)
		if err != nil {
			return err
		}
		if converted != nil {
			text = converted
		}
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write %s: %w", strings.ToUpper(format), err)
	}
	return nil
}

// encode formats a value as JSON, with a prefix on each line but the first, and a newline at the end.
func encode(value any, prefix string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent(prefix, "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	escaped, _ := sanitize.Escape(text.Bytes())
	return escaped, nil
}

// toYAML converts JSON without bare control characters. The encoder does not escape a few characters that need double
// quotes: with one of those the result is nil. JSON is valid YAML, too.
func toYAML(text []byte) ([]byte, error) {
	converted, err := yaml.JSONToYAML(text)
	if err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	if escaped, _ := sanitize.Escape(converted); !bytes.Equal(escaped, converted) {
		return nil, nil
	}
	return converted, nil
}
