package rules

import "slices"

// Kinds of objects.
const (
	kindService       = "Service"
	kindNamespace     = "Namespace"
	kindEndpointSlice = "EndpointSlice"
	kindNode          = "Node"
)

// rules are all of them. Their order is that of every list of violations.
var rules = []Rule{
	{
		ID: "SVC001", Kind: kindService, Default: Deny,
		Summary: "The list of topology keys, or an entry in it, is empty, so the proxy ignores the whole list.",
	},
	{
		ID: "SVC002", Kind: kindService, Default: Deny,
		Summary: "The list has more than 16 topology keys, so the proxy ignores it.",
	},
	{
		ID: "SVC003", Kind: kindService, Default: Deny,
		Summary: "A topology key is neither the key of a node label nor *, so the proxy ignores the whole list.",
	},
	{
		ID: "SVC004", Kind: kindService, Default: Deny,
		Summary: "A topology key stands twice in the list, so the proxy ignores the whole list.",
	},
	{
		ID: "SVC005", Kind: kindService, Default: Deny,
		Summary: "The topology key * has keys after it, which would never be tried, so the proxy ignores the whole list.",
	},
	{
		ID: "SVC006", Kind: kindService, Default: Deny,
		Summary: "Topology keys contradict externalTrafficPolicy: Local, so the proxy ignores them; * alone does not.",
	},
	{
		ID: "SVC007", Kind: kindService, Default: Deny,
		Summary: "Topology keys and topology-mode=Auto are both set; the proxy obeys the keys, and other proxies the mode.",
	},
	{
		ID: "SVC008", Kind: kindService, Default: Deny,
		Summary: "The topology mode differs from a known value only by case or spaces, or is a value of trafficDistribution; " +
			"Kubernetes treats it as Disabled.",
	},
	{
		ID: "SVC009", Kind: kindService, Default: Deny,
		Summary: "An annotation or label of vicinity.dev is unknown on Services, or has an unknown value, and so does nothing.",
	},
	{
		ID: "SVC020", Kind: kindService, Default: Warn, Strict: true,
		Summary: "spec.trafficDistribution has no effect beside topology-mode=Auto.",
	},
	{
		ID: "SVC021", Kind: kindService, Default: Warn,
		Summary: "spec.trafficDistribution has no effect beside topology keys.",
	},
	{
		ID: "SVC022", Kind: kindService, Default: Warn, Strict: true,
		Summary: "The topology mode is an unknown word, which Kubernetes treats as Disabled; one with a domain before it is a vendor's.",
	},
	{
		ID: "SVC023", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect on an ExternalName Service, which no proxy serves.",
	},
	{
		ID: "SVC024", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect on a headless Service, which no proxy serves.",
	},
	{
		ID: "SVC025", Kind: kindService, Default: Warn,
		Summary: "Topology mode Auto or trafficDistribution is set on a Service without selector, for which no controller computes hints.",
	},
	{
		ID: "SVC026", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect within the cluster beside internalTrafficPolicy: Local.",
	},
	{
		ID: "SVC027", Kind: kindService, Default: Warn,
		Summary: "The list of topology keys does not end in *, so connections fail where no endpoint matches.",
	},
	{
		ID: "SVC028", Kind: kindService, Default: Warn,
		Summary: "A topology key comes after one that matches wherever it does, so it is never reached.",
	},
	{
		ID: "SVC029", Kind: kindService, Default: Warn,
		Summary: "A topology key is a label of failure-domain.beta.kubernetes.io, which Kubernetes has replaced.",
	},
	{
		ID: "SVC030", Kind: kindService, Default: Warn,
		Summary: "No node has the label of a topology key, so the key never matches.",
	},
	{
		ID: "SVC031", Kind: kindService, Default: Warn,
		Summary: "A topology setting is a label instead of an annotation, or its name is misspelt, and so it does nothing.",
	},
	{
		ID: "SVC032", Kind: kindService, Default: Warn,
		Summary: "spec.topologyKeys was removed in Kubernetes 1.22; API servers drop it.",
	},
	{
		ID: "SVC033", Kind: kindService, Default: Warn,
		Summary: "The annotation openyurt.io/topologyKeys is not read, and there are no topology keys beside it.",
	},
	{
		ID: "SVC034", Kind: kindService, Default: Warn,
		Summary: "The name of the proxy is empty, which leaves the Service without one, or changes on a live Service.",
	},
	{
		ID: "SVC035", Kind: kindService, Default: Warn,
		Summary: "Topology keys are set on a Service of another proxy, which does not read them.",
	},
	{
		ID: "NS001", Kind: kindNamespace, Default: Deny,
		Summary: "The default topology mode is none of Auto, Disabled and None, so no Service is given it.",
	},
	{
		ID: "NS002", Kind: kindNamespace, Default: Deny,
		Summary: "The default topology keys are wrong, as in SVC001 to SVC005, so no Service is given them.",
	},
	{
		ID: "NS003", Kind: kindNamespace, Default: Deny,
		Summary: "The default traffic distribution is none of PreferSameZone, PreferSameNode and None, so no Service is given it.",
	},
	{
		ID: "NS004", Kind: kindNamespace, Default: Deny,
		Summary: "There is more than one kind of default, so no Service is given any.",
	},
	{
		ID: "NS005", Kind: kindNamespace, Default: Deny,
		Summary: "An annotation or label of vicinity.dev is unknown on Namespaces, or has an unknown value, and so does nothing.",
	},
	{
		ID: "EPS001", Kind: kindEndpointSlice, Default: Deny,
		Summary: "The zone of an endpoint is empty, or cannot be the value of a node label.",
	},
	{
		ID: "EPS002", Kind: kindEndpointSlice, Default: Deny,
		Summary: "A hint names the zone \"\", which selects all nodes without zone.",
	},
	{
		ID: "EPS003", Kind: kindEndpointSlice, Default: Warn,
		Summary: "Some ready endpoints have hints and others have not, so proxies ignore all hints of the Service.",
	},
	{
		ID: "NODE001", Kind: kindNode, Default: Warn,
		Summary: "The zone of a node is empty, which turns topology-mode=Auto off for every Service.",
	},
	{
		ID: "NODE002", Kind: kindNode, Default: Warn,
		Summary: "The zone of a live node changes, and EndpointSlices keep the old one until their Services change.",
	},
}

// Rules returns every rule, in the order of lists of violations.
func Rules() []Rule { return slices.Clone(rules) }

// RuleOf returns the rule with an id.
func RuleOf(id ID) (Rule, bool) {
	at := order(id)
	if at < 0 {
		return Rule{}, false
	}
	return rules[at], true
}

// order is the place of a rule among all; -1 if there is none with that id.
func order(id ID) int {
	if at, known := places[id]; known {
		return at
	}
	return -1
}

// places are those of all rules. An object can make so many mistakes that a search for each would take long.
var places = func() map[ID]int {
	byID := make(map[ID]int, len(rules))
	for at, rule := range rules {
		byID[rule.ID] = at
	}
	return byID
}()
