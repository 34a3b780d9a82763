package explain

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Stream writes ports one after the other, as "text", "json" or "yaml". Those of a large cluster may not fit into
// memory. Close completes the output.
type Stream struct {
	w      io.Writer
	format string
	// Written is the number of ports that were written.
	Written int
}

// NewStream returns a stream to w.
func NewStream(w io.Writer, format string) *Stream { return &Stream{w: w, format: format} }

// Write writes further ports in one call to the writer.
func (s *Stream) Write(ports []PortReport) error {
	var page bytes.Buffer
	for i := range ports {
		if err := s.add(&page, &ports[i]); err != nil {
			return err
		}
		s.Written++
	}
	return s.flush(page.Bytes())
}

// Close writes the end of the output; if there were no ports, an empty list.
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

// add adds one port: a paragraph, or an item of a list.
func (s *Stream) add(page *bytes.Buffer, port *PortReport) error {
	if s.format == "text" {
		if s.Written > 0 {
			page.WriteByte('\n')
		}
		writePort(page, *port)
		return nil
	}
	item, err := encode(port, "  ")
	if err != nil {
		return err
	}
	item = bytes.TrimSuffix(item, []byte("\n"))
	switch {
	case s.format == "yaml":
		list, err := toYAML(slices.Concat([]byte("["), item, []byte("]")))
		if err != nil {
			return err
		}
		if list == nil {
			list = slices.Concat([]byte("- "), item, []byte("\n"))
		}
		page.Write(list)
		return nil
	case s.Written == 0:
		page.WriteString("[\n  ")
	default:
		page.WriteString(",\n  ")
	}
	page.Write(item)
	return nil
}
