package forecast

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
)

// page is the HTML page without the report. It loads no external resources.
//
//go:embed page.html
var page []byte

// reportPlaceholder is replaced by the report.
var reportPlaceholder = []byte("{{report}}")

// HTML writes a report as one page.
func HTML(w io.Writer, report *Report) error {
	text, err := json.Marshal(report) // it escapes "<", so that no name ends the script element
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if _, err := w.Write(bytes.Replace(page, reportPlaceholder, text, 1)); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
