package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Report is the output of 'run --check'.
//
// Its JSON names are an interface: scripts read them.
type Report struct {
	Starts bool   `json:"starts"`
	File   string `json:"file"`
	Node   string `json:"node"`
	// Settings are about the file, OnNode about this node. VicinityFields are our own settings in the file, by field.
	Settings       []SettingResult   `json:"settings"`
	VicinityFields map[string]string `json:"own"`
	OnNode         []SettingResult   `json:"onNode"`
}

// Evaluate sets Starts, unless a result is Rejected.
func (r *Report) Evaluate() {
	r.Starts = starts(r.Settings) && starts(r.OnNode)
}

// Text writes the report for people. Results that are Same are only counted.
func (r *Report) Text(to io.Writer) {
	same := 0
	for i := range r.Settings {
		if r.Settings[i].Outcome == Same {
			same++
			continue
		}
		r.Settings[i].text(to)
	}
	sanitize.Fprintf(to, "Settings of the file with the same effect as in kube-proxy: %d. kube-proxy's defaults are not listed.\n\n",
		same)
	if len(r.VicinityFields) > 0 {
		sanitize.Fprintf(to, "Vicinity's own settings in the file: %s.\n\n", strings.Join(slices.Sorted(maps.Keys(r.VicinityFields)), ", "))
	}
	sanitize.Fprintf(to, "On this node:\n\n")
	for i := range r.OnNode {
		r.OnNode[i].text(to)
	}
	if r.Starts {
		sanitize.Fprintf(to, "The proxy would start with this file on this node. Nothing was changed.\n")
		return
	}
	sanitize.Fprintf(to, "The proxy would not start: see the refused settings. Nothing was changed.\n")
}

// text writes the setting or item, and below it the effect here.
func (r *SettingResult) text(to io.Writer) {
	line, effect := "", r.Effect
	if r.Line > 0 {
		line = fmt.Sprintf("line %d: ", r.Line)
	}
	if slices.Contains([]Outcome{Rejected, Unknown, Leftover}, r.Outcome) {
		effect = string(r.Outcome) + ": " + effect
	}
	sanitize.Fprintf(to, "%s%s: %s\n  %s\n", line, sanitize.Truncate(r.Subject), sanitize.Truncate(cmp.Or(r.Value, "-")), effect)
	if r.Do != "" {
		sanitize.Fprintf(to, "  to do: %s\n", r.Do)
	}
	sanitize.Fprintf(to, "\n")
}
