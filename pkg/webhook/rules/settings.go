package rules

// Settings are the administrator's settings; package config parses them from a file. The zero value is the default:
// every rule with its own action, and no default for any Service.
type Settings struct {
	// Actions override the actions of single rules.
	Actions map[ID]Action
	// Strict turns the warnings of rules with Rule.Strict into denials. Actions override it.
	Strict bool
	// Default is for Services in Namespaces without a default; nil for none.
	Default *Default
	// DefaultOnUpdate is set if defaults are added on updates, too. A changed default then moves live Services at their
	// next unrelated edit.
	DefaultOnUpdate bool
	// DefaultWithAffinity is set if Services with sessionAffinity: ClientIP get defaults, too.
	DefaultWithAffinity bool
	// ExcludedNamespaces get no defaults: kube-system, and the webhook's own.
	ExcludedNamespaces []string
	// ProxyName is the value of service.kubernetes.io/service-proxy-name for Vicinity's proxy; empty if it has none.
	ProxyName string
	// DNSByTopology is set if the nodes' DNS caches query Vicinity's proxies, which apply topology keys to headless
	// Services.
	DNSByTopology bool
}

// Action returns the action for a violation of a rule.
func (s *Settings) Action(rule Rule) Action {
	if action, set := s.Actions[rule.ID]; set {
		return action
	}
	if s.Strict && rule.Strict && rule.Default == Warn {
		return Deny
	}
	return rule.Default
}
