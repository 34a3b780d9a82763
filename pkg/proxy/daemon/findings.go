package daemon

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// findings reports findings about objects once when they start and once when they end: in the log, as Events, in status
// and metrics, and on pages. The cost of a change of one finding does not depend on their number.
type findings struct {
	*common
	reporter eventReporter

	mutex sync.Mutex
	since map[model.Finding]time.Time // when each active finding started
	// replaced holds the active findings that were reported by replace.
	replaced map[sourceKey][]model.Finding
	// byObject counts the rejection findings of each rejected object.
	byObject map[model.Finding]int
	byCode   map[model.FindingCode]int
	// rejected are the Services that the kernel rejects. Their retry counts change while the finding stays the same.
	rejected map[model.ObjectName]syncer.Rejected
	budget   logBudget
}

// findingSource is a source that reports all its findings about a Service each time.
type findingSource int

const (
	sourceDecisions findingSource = iota
	sourceKernel
	sourceTables
	sourceHealthChecks
	sourceLocalhost
)

type sourceKey struct {
	source  findingSource
	service model.ObjectName
}

func newFindings(c *common, reporter eventReporter) *findings {
	return &findings{
		common: c, reporter: reporter,
		since: map[model.Finding]time.Time{}, replaced: map[sourceKey][]model.Finding{},
		byObject: map[model.Finding]int{}, byCode: map[model.FindingCode]int{},
		rejected: map[model.ObjectName]syncer.Rejected{},
	}
}

// change adds new findings, and removes those that ended.
func (f *findings) change(found, ended []model.Finding) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.report(found, ended, f.log)
	f.reporter.reportFindings(found)
}

// maxLoggedAtOnce is the maximum number of Services whose findings one call of replace logs. The page /findings has all
// of them.
const maxLoggedAtOnce = 100

// replace sets all findings of a source about some Services. A finding that persists is reported as an Event again: the
// recorder limits how often.
func (f *findings) replace(source findingSource, all ...servicefindings.ServiceFindings) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	logged, log := 0, f.log
	for _, current := range all {
		key := sourceKey{source, current.Service}
		before := f.replaced[key]
		if delete(f.replaced, key); len(current.Findings) > 0 {
			f.replaced[key] = current.Findings
		}
		if !slices.Equal(before, current.Findings) {
			if logged++; logged > maxLoggedAtOnce {
				log = slog.New(slog.DiscardHandler)
			}
			f.report(subtract(current.Findings, before), subtract(before, current.Findings), log)
		}
		f.reporter.reportFindings(current.Findings)
	}
	if logged > maxLoggedAtOnce {
		f.log.Warn("too many findings to log at once; the page /findings has all of them", "more", logged-maxLoggedAtOnce)
	}
}

// replaceAll is replace for all Services.
func (f *findings) replaceAll(source findingSource, found []model.Finding) {
	byService := map[model.ObjectName][]model.Finding{}
	for _, service := range f.servicesWith(source) {
		byService[service] = nil
	}
	for _, finding := range found {
		byService[finding.Name] = append(byService[finding.Name], finding)
	}
	all := make([]servicefindings.ServiceFindings, 0, len(byService))
	for _, name := range slices.SortedFunc(maps.Keys(byService), model.ObjectName.Compare) {
		all = append(all, servicefindings.ServiceFindings{Service: name, Findings: byService[name]})
	}
	f.replace(source, all...)
}

// servicesWith returns the Services with active findings of a source.
func (f *findings) servicesWith(source findingSource) []model.ObjectName {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var services []model.ObjectName
	for key := range f.replaced {
		if key.source == source {
			services = append(services, key.service)
		}
	}
	return services
}

// onDecided receives the findings of decisions about Services.
func (f *findings) onDecided(all []servicefindings.ServiceFindings) {
	f.replace(sourceDecisions, all...)
}

// onRejectedByKernel processes the rejections that started or ended since the last report.
func (f *findings) onRejectedByKernel(report syncer.Report) {
	all := make([]servicefindings.ServiceFindings, 0, len(report.Rejected)+len(report.NoLongerRejected))
	f.mutex.Lock()
	for _, service := range report.NoLongerRejected {
		delete(f.rejected, service)
		all = append(all, servicefindings.ServiceFindings{Service: service})
	}
	for _, one := range report.Rejected {
		f.rejected[one.Service] = one
		all = append(all, servicefindings.ServiceFindings{Service: one.Service, Findings: []model.Finding{one.Finding()}})
	}
	f.mutex.Unlock()
	f.replace(sourceKernel, all...)
}

// report adds and removes findings, and logs and counts them. If a fault persists for another reason, its end is
// not logged.
func (f *findings) report(found, ended []model.Finding, log *slog.Logger) {
	persists := map[fault]bool{}
	for _, finding := range found {
		persists[faultOf(finding)] = true
		if !f.since[finding].IsZero() {
			continue
		}
		f.since[finding] = time.Now()
		f.count(finding, +1)
		if f.budget.allows(log, finding.Subject()) {
			log.Warn(events.TextsOf(finding.Code).LogStart, "problem", finding.String(), "code", finding.Code)
		}
	}
	for _, finding := range ended {
		if f.since[finding].IsZero() {
			continue
		}
		delete(f.since, finding)
		f.count(finding, -1)
		if !persists[faultOf(finding)] && f.budget.allows(log, finding.Subject()) {
			log.Info(events.TextsOf(finding.Code).LogEnd, "problem", finding.String(), "code", finding.Code)
		}
	}
	if len(found)+len(ended) > 0 {
		f.status.SetInvalidObjects(len(f.byObject))
	}
}

// fault identifies a faulty field of an object, and the kind of its fault.
type fault struct {
	subject model.Subject
	code    model.FindingCode
	field   string
}

func faultOf(f model.Finding) fault { return fault{f.Subject(), f.Code, f.Field} }

// count adds delta, 1 or -1, to the counts of a finding.
func (f *findings) count(finding model.Finding, delta int) {
	f.byCode[finding.Code] += delta
	f.recorder.Set(metrics.Findings, f.byCode[finding.Code], string(finding.Code))
	if !finding.IsRejection() {
		return
	}
	object := finding
	object.Field, object.Reason = "", ""
	if f.byObject[object] += delta; f.byObject[object] == 0 {
		delete(f.byObject, object)
	}
}

// ActiveFinding is an active finding, as shown on the page /findings.
type ActiveFinding struct {
	File      string            `json:"file,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	Code      model.FindingCode `json:"code"`
	Field     string            `json:"field,omitempty"`
	Sentence  string            `json:"sentence"`
	// Local reports whether it concerns this node only.
	Local bool      `json:"local,omitempty"`
	Since time.Time `json:"since"`
	// Kernel is the state of the retries, if the kernel rejects the Service.
	Kernel *explain.Rejection `json:"kernel,omitempty"`
}

// active returns the findings with one of the codes, or all if codes is empty, sorted for display; never nil.
func (f *findings) active(codes ...string) []ActiveFinding {
	f.mutex.Lock()
	since, rejected := maps.Clone(f.since), maps.Clone(f.rejected)
	f.mutex.Unlock()
	list := []ActiveFinding{}
	for _, finding := range slices.SortedFunc(maps.Keys(since), model.Finding.Compare) {
		if len(codes) > 0 && !slices.Contains(codes, string(finding.Code)) {
			continue
		}
		entry := ActiveFinding{
			finding.File, finding.Kind, finding.Name.Namespace, finding.Name.Name, finding.Code, finding.Field, finding.Reason, finding.Local,
			since[finding].UTC(), nil,
		}
		if rejection, isRejected := rejected[finding.Name]; isRejected && finding.Code == model.FailedToProgram {
			entry.Kernel = &explain.Rejection{
				Service: finding.Name.String(), Message: rejection.Err.Error(),
				Since: rejection.Since, Tries: rejection.Tries, Next: rejection.Next, HasApplied: rejection.HasApplied,
			}
		}
		list = append(list, entry)
	}
	return list
}

// subtract returns the findings that are not in others.
func subtract(findings, others []model.Finding) []model.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f model.Finding) bool { return slices.Contains(others, f) })
}

// By changing an object repeatedly, anyone with write access to it can make the proxies of all nodes log lines about
// it. So at most linesPerObject lines about an object are logged per logPeriod.
const (
	linesPerObject = 32
	logPeriod      = time.Minute
)

// logBudget limits the log lines about each object.
type logBudget struct {
	start time.Time
	lines map[model.Subject]int
}

// allows reports whether one more line about an object may be logged now. When the limit is reached, it logs that
// further lines are suppressed.
func (b *logBudget) allows(log *slog.Logger, object model.Subject) bool {
	if now := time.Now(); b.lines == nil || now.Sub(b.start) >= logPeriod {
		b.start, b.lines = now, map[model.Subject]int{}
	}
	b.lines[object]++
	if b.lines[object] == linesPerObject+1 {
		log.Warn("rate limit: suppressing log lines about this object for a minute",
			"kind", cmp.Or(object.Kind, "File"), "object", cmp.Or(object.File, object.Name.String()))
	}
	return b.lines[object] <= linesPerObject
}
