package check

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// actionError is the action of a finding that follows from no rule: something could not be checked.
const actionError rules.Action = "error"

// Report is what is wrong with all files. Its JSON is what scripts read.
type Report struct {
	Findings []finding `json:"findings"`
	Summary  summary   `json:"summary"`
}

// finding is one thing that is wrong. Its texts but for the file's name are safe to print.
type finding struct {
	File      string       `json:"file"` // as given on the command line, or below a folder that was; "<stdin>"
	Line      int          `json:"line"` // zero for a file as a whole
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Rule      rules.ID     `json:"rule"` // empty for an error
	Action    rules.Action `json:"action"`
	Path      string       `json:"path"`
	Message   string       `json:"message"`
}

// summary counts.
type summary struct {
	Checked    int `json:"checked"`    // objects that were judged
	PassedOver int `json:"passedOver"` // objects of other kinds, and those that were opted out
	Denied     int `json:"denied"`     // objects that would be refused
	Warnings   int `json:"warnings"`   // findings
	Errors     int `json:"errors"`     // findings
}

// Judge judges all objects that were read.
func (c *Files) Judge(settings *rules.Settings) Report {
	report := Report{Findings: c.findings, Summary: summary{PassedOver: c.passedOver, Errors: len(c.findings)}}
	for i := range c.objects {
		if c.isExempt(&c.objects[i]) {
			report.Summary.PassedOver++
			continue
		}
		report.add(&c.objects[i], c.judge(&c.objects[i], settings))
	}
	report.sort(c.files)
	return report
}

// isExempt reports whether the webhook would not be asked about an object because of its labels, or those of its
// Namespace.
func (c *Files) isExempt(o *object) bool {
	if o.namespace != nil {
		return isOptedOut(&o.namespace.Metadata)
	}
	return isOptedOut(&o.service.Metadata) || c.optedOut[o.service.Metadata.Namespace]
}

// judge judges an object as one that is new.
func (c *Files) judge(o *object, settings *rules.Settings) rules.Judgement {
	if o.namespace != nil {
		return rules.ReviewNamespace(nil, o.namespace, settings)
	}
	facts := rules.Facts{Nodes: c.nodes, Services: besides{c.services, o.service.Metadata.Namespace}}
	return rules.ReviewService(nil, o.service, facts, settings)
}

// add takes in what was judged of an object.
func (r *Report) add(o *object, judgement rules.Judgement) {
	r.Summary.Checked++
	if len(judgement.Denied) > 0 {
		r.Summary.Denied++
	}
	r.Summary.Warnings += len(judgement.Warned)
	for _, violation := range judgement.Denied {
		r.Findings = append(r.Findings, o.place.violation(violation, rules.Deny))
	}
	for _, violation := range judgement.Warned {
		r.Findings = append(r.Findings, o.place.violation(violation, rules.Warn))
	}
}

func (p place) violation(violation rules.Violation, action rules.Action) finding {
	finding := p.finding(violation.Error.Field, action, violation.Message())
	finding.Rule = violation.Rule
	return finding
}

// fail records that something could not be checked.
func (c *Files) fail(at place, field, reason string) {
	c.number(at.file)
	message := reason
	if field != "" {
		message = field + ": " + reason
	}
	c.findings = append(c.findings, at.finding(field, actionError, message))
}

// finding describes a place.
func (p place) finding(field string, action rules.Action, message string) finding {
	found := finding{File: p.file, Action: action, Path: printable.Short(field), Message: printable.Short(message)}
	if p.part == nil {
		return found
	}
	found.Kind, found.Namespace = printable.Short(p.part.Type.Kind), printable.Short(p.part.Namespace)
	found.Name = printable.Short(p.part.Name)
	if found.Line = p.part.LineOf(field); p.part.Fault != nil && p.part.Fault.Line > 0 {
		found.Line = p.part.Fault.Line
	}
	return found
}

// sort orders findings as people read files: in the order of the files, from top to bottom, and errors before what
// rules say. What stands on one line stays in the order of the rules.
func (r *Report) sort(files map[string]int) {
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line))
	})
	if r.Findings == nil {
		r.Findings = []finding{} // "[]" in JSON, and not null
	}
}

// WriteText writes a line for each finding, as editors read the messages of compilers, and then the summary.
func (r *Report) WriteText(stdout, stderr io.Writer) error {
	buffered := bufio.NewWriter(stdout)
	for i := range r.Findings {
		printable.Fprintf(buffered, "%s\n", &r.Findings[i])
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	printable.Fprintf(stderr, "%s\n", r.Summary)
	return nil
}

// String returns "web.yaml:7: Service shop/web: <message> (deny)".
func (f *finding) String() string {
	var line strings.Builder
	line.WriteString(printable.Short(f.File))
	if f.Line > 0 {
		line.WriteString(":" + strconv.Itoa(f.Line))
	}
	if f.Kind != "" {
		line.WriteString(": " + strings.TrimSpace(f.Kind+" "+f.fullName()))
	}
	line.WriteString(": " + f.Message + " (" + string(f.Action) + ")")
	return line.String()
}

// fullName is the object's name, after its namespace if it has one.
func (f *finding) fullName() string {
	if f.Namespace == "" {
		return f.Name
	}
	return f.Namespace + "/" + f.Name
}

// String returns "3 objects checked, 1 denied, 2 warnings".
func (s summary) String() string {
	text := fmt.Sprintf("%s checked, %d denied, %s", counted(s.Checked, "object"), s.Denied, counted(s.Warnings, "warning"))
	if s.Errors > 0 {
		text += ", " + counted(s.Errors, "error")
	}
	if s.PassedOver > 0 {
		text += fmt.Sprintf("; %d passed over", s.PassedOver)
	}
	return text
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
