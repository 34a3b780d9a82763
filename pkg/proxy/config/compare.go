package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Outcome is what happens to something when this proxy replaces kube-proxy.
type Outcome string

// The outcomes.
const (
	// Same: it does what it did.
	Same Outcome = "same"
	// Differs: something else happens than before.
	Differs Outcome = "differs"
	// Ignored: it is not read.
	Ignored Outcome = "ignored"
	// Leftover: kube-proxy's, and no longer of use.
	Leftover Outcome = "leftover"
	// Unknown: it could not be found out.
	Unknown Outcome = "unknown"
	// Refused: the proxy does not start.
	Refused Outcome = "refused"
)

// Verdict is what happens to a setting of kube-proxy's file, or to something on the node.
//
// Its JSON names are an interface: `proxy run --check` prints them.
type Verdict struct {
	Subject string  `json:"subject"`        // a field of the file, or what was looked at
	Line    int     `json:"line,omitempty"` // of the file; 0: the file does not set it
	Value   string  `json:"value"`          // in the file, or what was found
	Outcome Outcome `json:"outcome"`
	Here    string  `json:"here"`         // what happens here, for people
	Do      string  `json:"do,omitempty"` // what to do about it
}

// Comparison is what a file of kube-proxy means there and here.
type Comparison struct {
	// Verdicts are about what the file sets, by line, and then about kube-proxy's defaults that differ.
	Verdicts []Verdict
	// NodePorts is where kube-proxy serves node ports.
	NodePorts model.NodePortAddresses
}

// Starts reports whether the proxy starts with the file.
func (c *Comparison) Starts() bool { return starts(c.Verdicts) }

// starts reports whether nothing is refused.
func starts(verdicts []Verdict) bool {
	return !slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Outcome == Refused })
}

// Compare says what happens to each setting of a file. An error says that the file cannot be read. Settings without
// meaning here that have kube-proxy's default are left out, as in Notes.
func Compare(path string) (*Comparison, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return compare(content), nil
}

func compare(text []byte) *Comparison {
	found, err := readDocuments(text)
	document := found.kubeProxys
	if document == nil {
		err = cmp.Or(err, fmt.Errorf("the file has no document of kind %s", kind))
	}
	if err != nil {
		return &Comparison{Verdicts: []Verdict{{Subject: "the file", Outcome: Refused, Here: err.Error()}}}
	}
	var there Configuration
	compared := &Comparison{Verdicts: ofFaults(document, document.Decode(&there))}
	if compared.Starts() {
		compared.Verdicts = append(compared.Verdicts, ofSettings(&there)...)
		compared.NodePorts = nodePortsThere(&there)
	}
	for i := range compared.Verdicts {
		if v := &compared.Verdicts[i]; v.Value != "" {
			v.Line = document.LineOf(v.Subject)
		}
	}
	for i := range found.passedOver {
		other := &found.passedOver[i]
		compared.Verdicts = append(compared.Verdicts,
			Verdict{Subject: other.Type.Kind, Line: other.LineOf("kind"), Outcome: Ignored, Here: notRead(other)})
	}
	slices.SortStableFunc(compared.Verdicts, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(min(a.Line, 1), min(b.Line, 1))*-1, cmp.Compare(a.Line, b.Line))
	})
	return compared
}

// ofFaults judges fields that no kube-proxy has, that are set twice, or that have the wrong type.
func ofFaults(document *manifest.Part, faults []manifest.Fault) []Verdict {
	var verdicts []Verdict
	for _, fault := range faults {
		verdict := Verdict{Subject: fault.Field, Line: document.LineOf(fault.Field), Outcome: Ignored, Here: withoutEffect(fault)}
		if verdict.Here == "" {
			verdict.Outcome, verdict.Here = Refused, fault.Reason
			if meant := suggestion(fault); meant != "" {
				verdict.Do = "write " + meant + " if that is meant, else remove it; kube-proxy does not read it either"
			}
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// ofSettings judges every field that is set, and every default that differs.
func ofSettings(there *Configuration) []Verdict {
	here := there.DeepCopy()
	said := map[string]string{}
	for _, note := range slices.Concat(notes(there), unusedDetectors(there), takeModesSection(here)) {
		field, why, _ := strings.Cut(note, ": ")
		said[field] = why
	}
	_, fieldErrors := Resolve(here.DeepCopy())
	var verdicts []Verdict
	for _, wrong := range fieldErrors {
		verdicts = append(verdicts, Verdict{Subject: wrong.Field, Value: Get(here, wrong.Field), Outcome: Refused, Here: wrong.Reason})
	}
	for _, path := range paths(false) {
		isWrong := slices.ContainsFunc(fieldErrors, func(wrong FieldError) bool { return wrong.Field == path })
		if path == "apiVersion" || path == "kind" || path == "featureGates" || isWrong {
			continue
		}
		if verdict := ofSetting(there, path, said[path]); verdict.Outcome != "" {
			verdicts = append(verdicts, verdict)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there.FeatureGates)) {
		verdict := Verdict{Subject: "featureGates." + name, Value: fmt.Sprint(there.FeatureGates[name]), Outcome: Same}
		if verdict.Here = said[verdict.Subject]; verdict.Here != "" {
			verdict.Outcome = Ignored
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// ofSetting judges one field; without an outcome if there is nothing to say of it. said is the note about it.
func ofSetting(there *Configuration, path, said string) Verdict {
	verdict := Verdict{Subject: path, Value: Get(there, path)}
	if isZero := slices.Contains([]string{"0", "0s", "false"}, verdict.Value); isZero && !isPointer(path) {
		verdict.Value = ""
	}
	if differs := differences[path]; differs != nil {
		if verdict.Here, verdict.Do = differs(there); verdict.Here != "" {
			verdict.Outcome = Differs
			return verdict
		}
	}
	switch isRead := !isMeaningless(path) || countsInMode(path, there.Mode); {
	case said != "":
		verdict.Outcome, verdict.Here = Ignored, said
	case verdict.Value != "" && isRead:
		verdict.Outcome = Same
	}
	return verdict
}
