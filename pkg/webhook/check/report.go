package check

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// actionError is the action of a finding without a rule: something could not be checked.
const actionError rules.Action = "error"

// Report is the result for all files. Its JSON is an interface for scripts.
type Report struct {
	Findings []finding     `json:"findings"` // never null
	Skipped  []skippedFile `json:"skipped"`  // never null
	Summary  summary       `json:"summary"`
}

// skippedFile is a file that was excluded, or does not contain objects in the form that an API server gets.
type skippedFile struct {
	File   string `json:"file"` // in the same form as in a finding
	Role   role   `json:"role"`
	Reason string `json:"reason"`
}

// finding is a violation or an error. All its texts except for the file's name are safe to print.
type finding struct {
	File      string       `json:"file"` // as given on the command line, or below such a folder; "<stdin>"
	Line      int          `json:"line"` // zero for a whole file
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Rule      rules.ID     `json:"rule"` // empty for an error
	Action    rules.Action `json:"action"`
	Path      string       `json:"path"`
	Message   string       `json:"message"`
}

// summary contains the counts of a report.
type summary struct {
	Checked  int `json:"checked"`  // objects
	Skipped  int `json:"skipped"`  // objects of other kinds, and those that were opted out
	Denied   int `json:"denied"`   // objects that would be denied, and patches that would cause a denial
	Warnings int `json:"warnings"` // findings
	Errors   int `json:"errors"`   // findings

	Patches      int `json:"patches"` // of kustomizations, which were checked in part
	FilesSkipped int `json:"filesSkipped"`

	roles map[role]int // of the skipped files
}

// Check checks all objects that were read.
func (f *Files) Check(settings *rules.Settings) Report {
	report := Report{Findings: f.findings, Skipped: f.skippedFiles, Summary: summary{
		Skipped: f.skipped, Errors: len(f.findings), FilesSkipped: len(f.skippedFiles), roles: map[role]int{},
	}}
	for _, file := range f.skippedFiles {
		report.Summary.roles[file.Role]++
	}
	for i := range f.objects {
		if f.isExempt(&f.objects[i]) {
			report.Summary.Skipped++
			continue
		}
		report.add(&f.objects[i], f.evaluate(&f.objects[i], settings))
	}
	report.sort(f.fileIndex)
	return report
}

// isExempt reports whether the webhook would not be called for an object because of its labels, or those of its
// Namespace.
func (f *Files) isExempt(o *object) bool {
	if o.namespace != nil {
		return isOptedOut(&o.namespace.Metadata)
	}
	return isOptedOut(&o.service.Metadata) || f.optedOut[o.service.Metadata.Namespace]
}

// evaluate checks an object as a new one.
func (f *Files) evaluate(o *object, settings *rules.Settings) rules.Result {
	switch {
	case o.isPatch && o.namespace != nil:
		return rules.ReviewNamespacePatch(o.namespace, settings)
	case o.isPatch:
		return rules.ReviewServicePatch(o.service, settings)
	}
	if o.namespace != nil {
		return rules.ReviewNamespace(nil, o.namespace, settings)
	}
	facts := rules.Facts{Nodes: f.nodes, Services: otherServices{f.services, o.service.Metadata.Namespace}}
	return rules.ReviewService(nil, o.service, facts, settings)
}

// add adds the result for an object.
func (r *Report) add(o *object, result rules.Result) {
	if o.isPatch {
		r.Summary.Patches++
	} else {
		r.Summary.Checked++
	}
	if len(result.Denied) > 0 {
		r.Summary.Denied++
	}
	r.Summary.Warnings += len(result.Warned)
	for _, violation := range result.Denied {
		r.Findings = append(r.Findings, o.location.violationFinding(violation, rules.Deny))
	}
	for _, violation := range result.Warned {
		r.Findings = append(r.Findings, o.location.violationFinding(violation, rules.Warn))
	}
}

func (l location) violationFinding(violation rules.Violation, action rules.Action) finding {
	fieldErr := *violation.Error
	if rest, hasPrefix := strings.CutPrefix(fieldErr.Field, l.objectField); hasPrefix && l.objectField != "" {
		fieldErr.Field = l.partField + rest
	}
	violation.Error = &fieldErr
	finding := l.finding(fieldErr.Field, action, violation.Message())
	finding.Rule = violation.Rule
	return finding
}

// skip records once that a file is skipped.
func (f *Files) skip(file string, class classification) {
	clean := filepath.Clean(file)
	if f.isSkipped[clean] {
		return
	}
	f.isSkipped[clean] = true
	f.skippedFiles = append(f.skippedFiles, skippedFile{File: file, Role: class.role, Reason: class.reason})
}

// addError records that something could not be checked.
func (f *Files) addError(loc location, field, reason string) {
	f.assignIndex(loc.file)
	message := reason
	if field != "" {
		message = field + ": " + reason
	}
	f.findings = append(f.findings, loc.finding(field, actionError, message))
}

// finding returns a finding at a location.
func (l location) finding(field string, action rules.Action, message string) finding {
	found := finding{File: l.file, Action: action, Path: sanitize.Truncate(field), Message: sanitize.Truncate(message)}
	if l.part == nil {
		return found
	}
	found.Kind, found.Namespace = sanitize.Truncate(l.part.Type.Kind), sanitize.Truncate(l.part.Namespace)
	found.Name = sanitize.Truncate(l.part.Name)
	if found.Line = l.part.LineOf(field); l.part.Fault != nil && l.part.Fault.Line > 0 {
		found.Line = l.part.Fault.Line
	}
	return found
}

// sort sorts findings in the order of the files and their lines, with errors before violations. Findings on one line
// stay in the order of the rules.
func (r *Report) sort(files map[string]int) {
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line))
	})
}

// WriteText writes a line for each finding to stdout, in the format of compiler messages. It then writes the skipped
// files, if verbose is set, and the summary to stderr.
func (r *Report) WriteText(stdout, stderr io.Writer, verbose bool) error {
	buffered := bufio.NewWriter(stdout)
	for i := range r.Findings {
		sanitize.Fprintf(buffered, "%s\n", &r.Findings[i])
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if verbose {
		for _, file := range r.Skipped {
			sanitize.Fprintf(stderr, "%s: skipped: %s\n", sanitize.Truncate(file.File), file.Reason)
		}
	}
	sanitize.Fprintf(stderr, "%s\n", r.Summary)
	return nil
}

// String returns "web.yaml:7: Service shop/web: <message> (deny)".
func (f *finding) String() string {
	var line strings.Builder
	line.WriteString(sanitize.Truncate(f.File))
	if f.Line > 0 {
		line.WriteString(":" + strconv.Itoa(f.Line))
	}
	if f.Kind != "" {
		line.WriteString(": " + strings.TrimSpace(f.Kind+" "+f.fullName()))
	}
	line.WriteString(": " + f.Message + " (" + string(f.Action) + ")")
	return line.String()
}

// fullName returns the object's name, after its namespace if it has one.
func (f *finding) fullName() string {
	if f.Namespace == "" {
		return f.Name
	}
	return f.Namespace + "/" + f.Name
}

// String returns "3 objects checked, 1 denied, 2 warnings".
func (s summary) String() string {
	text := sanitize.Count(s.Checked, "object") + " checked, "
	if s.Patches > 0 {
		text += sanitize.CountOf(s.Patches, "patch", "patches") + " in part, "
	}
	text += fmt.Sprintf("%d denied, %s", s.Denied, sanitize.Count(s.Warnings, "warning"))
	if s.Errors > 0 {
		text += ", " + sanitize.Count(s.Errors, "error")
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %d skipped", s.Skipped)
	}
	if s.FilesSkipped > 0 {
		text += fmt.Sprintf("; %s skipped: %s", sanitize.Count(s.FilesSkipped, "file"), strings.Join(s.byRole(), ", "))
	}
	return text
}

// byRole returns the counts of skipped files: "1 kustomization", "2 patches".
func (s summary) byRole() []string {
	var counts []string
	for _, noun := range [...]struct {
		role      role
		one, many string
	}{
		{kustomizationFile, "kustomization", "kustomizations"}, {patchFile, "patch", "patches"},
		{inputFile, "input of a kustomization", "inputs of kustomizations"},
		{chartFile, "file of a Helm chart", "files of Helm charts"}, {excludedFile, "excluded", "excluded"},
	} {
		if n := s.roles[noun.role]; n > 0 {
			counts = append(counts, sanitize.CountOf(n, noun.one, noun.many))
		}
	}
	return counts
}
