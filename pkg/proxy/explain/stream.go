package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Stream writes ports as they come: "text", "json" or "yaml". Those of a large cluster may not fit into memory. Close
// completes the output.
type Stream struct {
	w      io.Writer
	format string
	// Written is how many ports are.
	Written int
}

// NewStream returns a stream to w.
func NewStream(w io.Writer, format string) *Stream { return &Stream{w: w, format: format} }

// Write writes some more ports, in one go.
func (s *Stream) Write(ports []Port) error {
	var page bytes.Buffer
	for i := range ports {
		if err := s.add(&page, &ports[i]); err != nil {
			return err
		}
		s.Written++
	}
	return s.flush(page.Bytes())
}

// Close writes what follows the last port, or what stands for an empty list.
func (s *Stream) Close() error {
	isEmpty := s.Written == 0
	switch {
	case s.format == "text" && isEmpty:
		return s.flush([]byte("no Service ports\n"))
	case s.format != "text" && isEmpty:
		return s.flush([]byte("[]\n"))
	case s.format == "json":
		return s.flush([]byte("\n]\n"))
	}
	return nil
}

func (s *Stream) flush(text []byte) error {
	if _, err := s.w.Write(text); err != nil {
		return fmt.Errorf("write %s: %w", s.name(), err)
	}
	return nil
}

func (s *Stream) name() string {
	if s.format == "text" {
		return s.format
	}
	return strings.ToUpper(s.format)
}

// add adds one port: a block behind an empty line, or an item of a list.
func (s *Stream) add(page *bytes.Buffer, port *Port) error {
	if s.format == "text" {
		if s.Written > 0 {
			page.WriteByte('\n')
		}
		writePort(page, *port)
		return nil
	}
	item, err := encode(port.withoutNull())
	if err != nil {
		return err
	}
	if s.format == "yaml" {
		return addYAML(page, item)
	}
	begin := ",\n  "
	if s.Written == 0 {
		begin = "[\n  "
	}
	page.WriteString(begin)
	page.Write(item)
	return nil
}

// encode writes a port as an item of a JSON list.
func encode(port Port) ([]byte, error) {
	var item bytes.Buffer
	encoder := json.NewEncoder(&item)
	encoder.SetIndent("  ", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(port); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	escaped, _ := printable.Escape(bytes.TrimSuffix(item.Bytes(), []byte("\n")))
	return escaped, nil
}

// addYAML adds an item of a JSON list to one in YAML.
func addYAML(page *bytes.Buffer, item []byte) error {
	list, err := yaml.JSONToYAML(append(append([]byte("["), item...), ']')) // which refuses JSON with bare control characters
	if err != nil {
		return fmt.Errorf("encode YAML: %w", err)
	}
	// Its encoder leaves a few characters that only double quotes could escape. JSON is YAML, too.
	if escaped, _ := printable.Escape(list); bytes.Equal(escaped, list) {
		page.Write(list)
		return nil
	}
	page.WriteString("- ")
	page.Write(item)
	page.WriteByte('\n')
	return nil
}
