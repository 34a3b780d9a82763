package rules

// Settings are what a cluster's administrator decides; package config reads them from a file. The zero value is the
// default: every rule with its own action, and no default for any Service.
type Settings struct {
	// Actions replace those of single rules.
	Actions map[ID]Action
	// Strict turns the warnings that Rule.Strict marks into denials. Actions override it.
	Strict bool
	// Default is for Services of Namespaces that say nothing; nil for none.
	Default *Default
	// DefaultOnUpdate: not only creates get defaults, but updates too. A change of a default then moves live Services at
	// their next unrelated edit.
	DefaultOnUpdate bool
	// DefaultWithAffinity: Services with sessionAffinity: ClientIP are given defaults too.
	DefaultWithAffinity bool
	// ExcludedNamespaces are given no defaults: kube-system, and the one in which the webhook runs.
	ExcludedNamespaces []string
	// ProxyName is the name that Vicinity's proxy has in service.kubernetes.io/service-proxy-name; empty without one.
	ProxyName string
	// DNSByTopology: the nodes' DNS caches ask Vicinity's proxies, which answer for headless Services by topology keys.
	DNSByTopology bool
}

// Action is what follows from a violation of a rule.
func (s *Settings) Action(rule Rule) Action {
	if action, set := s.Actions[rule.ID]; set {
		return action
	}
	if s.Strict && rule.Strict && rule.Default == Warn {
		return Deny
	}
	return rule.Default
}
