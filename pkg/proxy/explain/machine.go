package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Print writes a value for machines: "json" or "yaml". Characters that would control a terminal are escaped, without
// changing the value.
func Print(w io.Writer, format string, value any) error {
	var page bytes.Buffer
	encoder := json.NewEncoder(&page)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	text, _ := printable.Escape(page.Bytes())
	if format == "yaml" {
		converted, err := yaml.JSONToYAML(text) // which refuses JSON with bare control characters
		if err != nil {
			return fmt.Errorf("encode YAML: %w", err)
		}
		// Its encoder leaves a few characters that only double quotes could escape. JSON is YAML, too.
		if escaped, _ := printable.Escape(converted); bytes.Equal(escaped, converted) {
			text = converted
		}
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write %s: %w", strings.ToUpper(format), err)
	}
	return nil
}

// withoutNull returns a port with empty lists for nil ones: those would be null in JSON, over which no script can iterate.
func (p *Port) withoutNull() Port {
	port := *p
	port.Frontends = neverNull(port.Frontends)
	port.Excluded = neverNull(port.Excluded)
	port.Traffic = slices.Clone(neverNull(port.Traffic))
	for i := range port.Traffic {
		port.Traffic[i].Frontends = neverNull(port.Traffic[i].Frontends)
	}
	port.Cluster.Endpoints = neverNull(port.Cluster.Endpoints)
	if port.Local != nil {
		local := *port.Local
		local.Endpoints = neverNull(local.Endpoints)
		port.Local = &local
	}
	return port
}

func neverNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
