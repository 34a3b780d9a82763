package proxy

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Found is all that was found of a Service when it was decided; no findings: there is nothing left of what was reported.
type Found struct {
	Service  model.ObjectName
	Findings []model.Finding
}

// The bounds of what a report says of findings: how many Services there is something to say of, and how much of each.
const (
	MaxFound    = 100
	maxFindings = 2 * selection.MaxFindings
)

// serviceKind is the kind of object that a sync has findings of.
const serviceKind = "Service"

// notRemembered is why a port's clients are not remembered.
const notRemembered = "This Service is served without session affinity: too many Services have it and more than 256 endpoints each " +
	"(4,096 Services up to 4,096 endpoints, 256 beyond)"

// find adds what is found of one port and family; mostly all ports have the same endpoints.
func (s *decidedService) find(decision selection.Decision) {
	if len(s.findings) >= maxFindings {
		return
	}
	for _, finding := range decision.Findings() {
		finding = finding.Of(serviceKind, s.owned.Name)
		if len(s.findings) < maxFindings && !slices.Contains(s.findings, finding) {
			s.findings = append(s.findings, finding)
		}
	}
}

// reportFound reports what is found of the Services that the kernel has taken, and notes that, so that it is reported, too,
// when nothing is found any more.
func (p *Proxy) reportFound(report *Report, plan *ruleset.Plan, found map[model.ObjectName][]model.Finding) {
	for _, port := range plan.Unremembered {
		name := port.Service
		if _, isDecided := found[name]; !isDecided && p.faulty[name] {
			continue // it waits for its turn: what was found of it stays
		}
		finding := model.Finding{Code: model.SessionAffinityIgnored, Reason: notRemembered, Local: true}.Of(serviceKind, name)
		if !slices.Contains(found[name], finding) {
			found[name] = append(found[name], finding)
		}
	}
	told := 0
	for _, one := range report.Found {
		if len(one.Findings) > 0 {
			told++
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(found), model.ObjectName.Compare) {
		switch {
		case len(found[name]) == 0:
			delete(p.faulty, name)
		case told == MaxFound:
			continue
		default:
			p.faulty[name], told = true, told+1
		}
		report.Found = append(report.Found, Found{name, found[name]})
	}
}
