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

// Outcome is what happens to a setting or to an item on the node when this proxy replaces kube-proxy.
type Outcome string

const (
	// Same means that the effect stays the same.
	Same Outcome = "same"
	// Differs means that the effect changes.
	Differs Outcome = "differs"
	// Ignored means that the setting is not read.
	Ignored Outcome = "ignored"
	// Leftover means that kube-proxy created the item, and that it is of no use any more.
	Leftover Outcome = "leftover"
	// Unknown means that the check failed.
	Unknown Outcome = "unknown"
	// Rejected means that the proxy does not start.
	Rejected Outcome = "refused"
)

// SettingResult is what happens to a setting of kube-proxy's file, or to an item on the node.
//
// Its JSON names are an interface: `proxy run --check` prints them.
type SettingResult struct {
	Subject string  `json:"subject"`        // a field of the file, or the item
	Line    int     `json:"line,omitempty"` // of the file; 0 if the file does not set the field
	Value   string  `json:"value"`          // in the file, or found on the node
	Outcome Outcome `json:"outcome"`
	Effect  string  `json:"here"`         // the effect with this proxy, for people
	Do      string  `json:"do,omitempty"` // what to do about it
}

// Comparison is the meaning of a kube-proxy file for kube-proxy and for this proxy.
type Comparison struct {
	// Results are about the settings of the file, by line, and then about kube-proxy's defaults that differ.
	Results []SettingResult
	// NodePorts is where kube-proxy serves node ports.
	NodePorts model.NodePortAddresses
}

// Starts reports whether the proxy starts with the file.
func (c *Comparison) Starts() bool { return starts(c.Results) }

// starts reports whether no result is Rejected.
func starts(results []SettingResult) bool {
	return !slices.ContainsFunc(results, func(result SettingResult) bool { return result.Outcome == Rejected })
}

// Compare returns what happens to each setting of a file, or an error if the file cannot be read. Settings without
// meaning here that have kube-proxy's default are omitted, as in File.IgnoredSettings.
func Compare(path string) (*Comparison, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return compare(content), nil
}

func compare(text []byte) *Comparison {
	found, err := readDocuments(text)
	document := found.kubeProxy
	if document == nil {
		err = cmp.Or(err, fmt.Errorf("the file has no document of kind %s", kind))
	}
	if err != nil {
		return &Comparison{Results: []SettingResult{{Subject: "the file", Outcome: Rejected, Effect: err.Error()}}}
	}
	var parsed Configuration
	compared := &Comparison{Results: faultResults(document, document.Decode(&parsed))}
	if compared.Starts() {
		compared.Results = append(compared.Results, settingResults(&parsed)...)
		compared.NodePorts = kubeProxyNodePorts(&parsed)
	}
	for i := range compared.Results {
		if result := &compared.Results[i]; result.Value != "" {
			result.Line = document.LineOf(result.Subject)
		}
	}
	for i := range found.skipped {
		other := &found.skipped[i]
		compared.Results = append(compared.Results,
			SettingResult{Subject: other.Type.Kind, Line: other.LineOf("kind"), Outcome: Ignored, Effect: skippedText(other)})
	}
	slices.SortStableFunc(compared.Results, func(a, b SettingResult) int {
		return cmp.Or(cmp.Compare(min(a.Line, 1), min(b.Line, 1))*-1, cmp.Compare(a.Line, b.Line))
	})
	return compared
}

// faultResults returns the results for fields that are unknown to kube-proxy, set twice, or of the wrong type.
func faultResults(document *manifest.Part, faults []manifest.ParseError) []SettingResult {
	var results []SettingResult
	for _, fault := range faults {
		result := SettingResult{Subject: fault.Field, Line: document.LineOf(fault.Field), Outcome: Ignored, Effect: unusedValue(fault)}
		if result.Effect == "" {
			result.Outcome, result.Effect = Rejected, fault.Reason
			if suggested := suggestion(fault); suggested != "" {
				result.Do = "write " + suggested + " if you mean that, or remove it; kube-proxy does not read it either"
			}
		}
		results = append(results, result)
	}
	return results
}

// settingResults returns the results for every field that is set, and for every default that differs.
func settingResults(original *Configuration) []SettingResult {
	effective := original.DeepCopy()
	reasons := map[string]string{}
	for _, note := range slices.Concat(ignoredMessages(original), unusedDetectors(original), applyModeSection(effective)) {
		field, reason, _ := strings.Cut(note, ": ")
		reasons[field] = reason
	}
	_, fieldErrors := Resolve(effective.DeepCopy())
	var results []SettingResult
	for _, fieldError := range fieldErrors {
		results = append(results, SettingResult{Subject: fieldError.Field, Value: Get(effective, fieldError.Field), Outcome: Rejected,
			Effect: fieldError.Reason})
	}
	for _, path := range fieldPaths(false) {
		isInvalid := slices.ContainsFunc(fieldErrors, func(fieldError FieldError) bool { return fieldError.Field == path })
		if path == "apiVersion" || path == "kind" || path == "featureGates" || isInvalid {
			continue
		}
		if result := settingResult(original, path, reasons[path]); result.Outcome != "" {
			results = append(results, result)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(original.FeatureGates)) {
		result := SettingResult{Subject: "featureGates." + name, Value: fmt.Sprint(original.FeatureGates[name]), Outcome: Same}
		if result.Effect = reasons[result.Subject]; result.Effect != "" {
			result.Outcome = Ignored
		}
		results = append(results, result)
	}
	return results
}

// settingResult returns the result for one field; it has no Outcome if there is nothing to report. reason is the note
// about it.
func settingResult(original *Configuration, path, reason string) SettingResult {
	result := SettingResult{Subject: path, Value: Get(original, path)}
	if isZero := slices.Contains([]string{"0", "0s", "false"}, result.Value); isZero && !isPointer(path) {
		result.Value = ""
	}
	if describe := differences[path]; describe != nil {
		if result.Effect, result.Do = describe(original); result.Effect != "" {
			result.Outcome = Differs
			return result
		}
	}
	switch isRead := !isIgnored(path) || appliesInMode(path, original.Mode); {
	case reason != "":
		result.Outcome, result.Effect = Ignored, reason
	case result.Value != "" && isRead:
		result.Outcome = Same
	}
	return result
}
