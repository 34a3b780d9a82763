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

// findings tells people what does not work about their objects, once when it is found and once when it is over: in the
// log, as Events, in health and metrics, and on pages. The cost of a change to one finding does not depend on how many
// there are.
type findings struct {
	*common
	reporter eventReporter

	mutex sync.Mutex
	since map[model.Finding]time.Time // those that hold now
	// replaced are the findings that came through replace.
	replaced map[sourceKey][]model.Finding
	// byObject counts, for each refused object, the reasons for its refusal.
	byObject map[model.Finding]int
	byCode   map[model.FindingCode]int
	// rejected are the Services that the kernel refuses: with each try the numbers change, and the finding does not.
	rejected map[model.ObjectName]syncer.Rejected
	budget   logBudget
}

// findingSource is a source that reports everything wrong with a Service each time.
type findingSource int

const (
	decisions findingSource = iota
	kernel
	tables
	healthCheckServers
	localhostListeners
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

// change takes in new findings, and those that are over.
func (f *findings) change(found, over []model.Finding) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.report(found, over, f.log)
	f.reporter.reportFindings(found)
}

// maxLoggedAtOnce is for how many Services replace logs something. The page /findings has everything.
const maxLoggedAtOnce = 100

// replace takes in everything that a finder has found about some Services, and forgets what it had found about them
// before. A finding that persists is reported as an Event again: the recorder limits how often.
func (f *findings) replace(by findingSource, all ...servicefindings.ServiceFindings) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	told, log := 0, f.log
	for _, now := range all {
		key := sourceKey{by, now.Service}
		before := f.replaced[key]
		if delete(f.replaced, key); len(now.Findings) > 0 {
			f.replaced[key] = now.Findings
		}
		if !slices.Equal(before, now.Findings) {
			if told++; told > maxLoggedAtOnce {
				log = slog.New(slog.DiscardHandler)
			}
			f.report(subtract(now.Findings, before), subtract(before, now.Findings), log)
		}
		f.reporter.reportFindings(now.Findings)
	}
	if told > maxLoggedAtOnce {
		f.log.Warn("too many findings to log at once; the page /findings has all of them", "more", told-maxLoggedAtOnce)
	}
}

// replaceAll is replace for all Services.
func (f *findings) replaceAll(by findingSource, found []model.Finding) {
	byService := map[model.ObjectName][]model.Finding{}
	for _, service := range f.servicesWith(by) {
		byService[service] = nil
	}
	for _, finding := range found {
		byService[finding.Name] = append(byService[finding.Name], finding)
	}
	all := make([]servicefindings.ServiceFindings, 0, len(byService))
	for _, name := range slices.SortedFunc(maps.Keys(byService), model.ObjectName.Compare) {
		all = append(all, servicefindings.ServiceFindings{Service: name, Findings: byService[name]})
	}
	f.replace(by, all...)
}

// servicesWith returns the Services with findings of a finder that still hold.
func (f *findings) servicesWith(by findingSource) []model.ObjectName {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var services []model.ObjectName
	for key := range f.replaced {
		if key.source == by {
			services = append(services, key.service)
		}
	}
	return services
}

// onDecided takes in findings from decisions about Services.
func (f *findings) onDecided(all []servicefindings.ServiceFindings) { f.replace(decisions, all...) }

// onRejectedByKernel takes in which Services the kernel refuses since a report, and which it has taken.
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
	f.replace(kernel, all...)
}

// report takes in what is new and what is over, and logs and counts it. If something still does not work, but for another
// reason, it is not over.
func (f *findings) report(found, over []model.Finding, log *slog.Logger) {
	goesOn := map[fault]bool{}
	for _, finding := range found {
		goesOn[faultOf(finding)] = true
		if !f.since[finding].IsZero() {
			continue
		}
		f.since[finding] = time.Now()
		f.count(finding, +1)
		if f.budget.allows(log, finding.Subject()) {
			log.Warn(events.TextsOf(finding.Code).LogStart, "problem", finding.String(), "code", finding.Code)
		}
	}
	for _, finding := range over {
		if f.since[finding].IsZero() {
			continue
		}
		delete(f.since, finding)
		f.count(finding, -1)
		if !goesOn[faultOf(finding)] && f.budget.allows(log, finding.Subject()) {
			log.Info(events.TextsOf(finding.Code).LogEnd, "problem", finding.String(), "code", finding.Code)
		}
	}
	if len(found)+len(over) > 0 {
		f.status.SetRejected(len(f.byObject))
	}
}

// fault is which part of an object does not work, and how.
type fault struct {
	subject model.Subject
	code    model.FindingCode
	field   string
}

func faultOf(f model.Finding) fault { return fault{f.Subject(), f.Code, f.Field} }

// count counts a finding that is new, or over.
func (f *findings) count(finding model.Finding, by int) {
	f.byCode[finding.Code] += by
	f.recorder.Set(metrics.Findings, f.byCode[finding.Code], string(finding.Code))
	if !finding.IsRejection() {
		return
	}
	object := finding
	object.Field, object.Reason = "", ""
	if f.byObject[object] += by; f.byObject[object] == 0 {
		delete(f.byObject, object)
	}
}

// ActiveFinding is a finding that holds, as the page /findings has it.
type ActiveFinding struct {
	File      string            `json:"file,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	Code      model.FindingCode `json:"code"`
	Field     string            `json:"field,omitempty"`
	Sentence  string            `json:"sentence"`
	// Local: it holds on this node only.
	Local bool      `json:"local,omitempty"`
	Since time.Time `json:"since"`
	// Kernel is how the kernel's tries went, of a Service that it refuses.
	Kernel *explain.Rejection `json:"kernel,omitempty"`
}

// active returns the findings of some codes, or all without a code, in the order in which they are read; never null.
func (f *findings) active(codes ...string) []ActiveFinding {
	f.mutex.Lock()
	since, rejected := maps.Clone(f.since), maps.Clone(f.rejected)
	f.mutex.Unlock()
	list := []ActiveFinding{}
	for _, one := range slices.SortedFunc(maps.Keys(since), model.Finding.Compare) {
		if len(codes) > 0 && !slices.Contains(codes, string(one.Code)) {
			continue
		}
		standing := ActiveFinding{
			one.File, one.Kind, one.Name.Namespace, one.Name.Name, one.Code, one.Field, one.Reason, one.Local, since[one].UTC(), nil,
		}
		if tried, isRefused := rejected[one.Name]; isRefused && one.Code == model.FailedToProgram {
			standing.Kernel = &explain.Rejection{
				Service: one.Name.String(), Message: tried.Err.Error(),
				Since: tried.Since, Tries: tried.Tries, Next: tried.Next, HasApplied: tried.HasApplied,
			}
		}
		list = append(list, standing)
	}
	return list
}

// subtract returns the findings that are not among others.
func subtract(findings, others []model.Finding) []model.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f model.Finding) bool { return slices.Contains(others, f) })
}

// Anybody who may write an object can make the proxies of all nodes log something about it, by changing it again and
// again.
const (
	linesPerObject = 32
	logPeriod      = time.Minute
)

// logBudget bounds what is logged about each object.
type logBudget struct {
	began time.Time
	lines map[model.Subject]int
}

// allows reports whether one more line about an object may be logged now. It logs itself that the rest is left out.
func (b *logBudget) allows(log *slog.Logger, object model.Subject) bool {
	if now := time.Now(); b.lines == nil || now.Sub(b.began) >= logPeriod {
		b.began, b.lines = now, map[model.Subject]int{}
	}
	b.lines[object]++
	if b.lines[object] == linesPerObject+1 {
		log.Warn("rate limit: suppressing log lines about this object for a minute",
			"kind", cmp.Or(object.Kind, "File"), "object", cmp.Or(object.File, object.Name.String()))
	}
	return b.lines[object] <= linesPerObject
}
