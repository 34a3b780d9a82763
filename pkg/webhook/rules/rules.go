package rules

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Kinds of objects.
const (
	kindService       = "Service"
	kindNamespace     = "Namespace"
	kindEndpointSlice = "EndpointSlice"
	kindNode          = "Node"
)

// rules are all rules, one per row. Those of one kind are in the order of their IDs, as is every list of violations.
var rules = []Rule{
	{
		ID: "SVC001", Kind: kindService, Default: Deny,
		Summary:     "The list of topology keys, or an entry in it, is empty, so the proxy ignores the whole list.",
		find:        invalidKeys(policy.NotEmpty),
		standsAlone: true,
	},
	{
		ID: "SVC002", Kind: kindService, Default: Deny,
		Summary:     "The list has more than 16 topology keys, so the proxy ignores it.",
		find:        invalidKeys(policy.AtMostMaxKeys),
		standsAlone: true,
	},
	{
		ID: "SVC003", Kind: kindService, Default: Deny,
		Summary:     "A topology key is neither the key of a node label nor *, so the proxy ignores the whole list.",
		find:        invalidKeys(policy.LabelKey),
		standsAlone: true,
	},
	{
		ID: "SVC004", Kind: kindService, Default: Deny,
		Summary:     "A topology key appears twice in the list, so the proxy ignores the whole list.",
		find:        invalidKeys(policy.Unique),
		standsAlone: true,
	},
	{
		ID: "SVC005", Kind: kindService, Default: Deny,
		Summary:     "The topology key * has keys after it, which would never be tried, so the proxy ignores the whole list.",
		find:        invalidKeys(policy.AnyNodeLast),
		standsAlone: true,
	},
	{
		ID: "SVC006", Kind: kindService, Default: Deny,
		Summary: "Topology keys contradict externalTrafficPolicy: Local, so the proxy ignores them; * alone does not.",
		find:    keysWithLocalPolicy,
	},
	{
		ID: "SVC007", Kind: kindService, Default: Deny,
		Summary: "Topology keys and topology-mode=Auto are both set; the proxy uses the keys, and other proxies the mode.",
		find:    keysWithMode,
	},
	{
		ID: "SVC008", Kind: kindService, Default: Deny,
		Summary: "The topology mode differs from a known value only by case or spaces, or is a value of trafficDistribution; " +
			"Kubernetes treats it as Disabled.",
		find:        misspeltMode,
		standsAlone: true,
	},
	{
		ID: "SVC009", Kind: kindService, Default: Deny,
		Summary:     "An annotation or label of vicinity.dev is unknown on Services, or has an unknown value, so it has no effect.",
		find:        unknownServiceKeys,
		standsAlone: true,
	},
	{
		ID: "SVC010", Kind: kindService, Default: Deny,
		Summary:     "The topology mode is an unknown value of vicinity.dev, so the proxy ignores it.",
		find:        unknownVicinityMode,
		standsAlone: true,
	},
	{
		ID: "SVC011", Kind: kindService, Default: Deny,
		Summary:     "max-load is not a whole number from 100 to 1000 followed by %, so the proxy uses the default load bound instead.",
		find:        invalidMaxLoad,
		standsAlone: true,
	},
	{
		ID: "SVC012", Kind: kindService, Default: Deny,
		Summary: "There is nothing to bound: no topology keys except *, no trafficDistribution, and not " +
			"topology-mode=vicinity.dev/balanced.",
		supersededBy: "SVC013",
		find:         nothingToBound,
	},
	{
		ID: "SVC013", Kind: kindService, Default: Deny,
		Summary: "max-load and topology-mode=Auto are both set, or topology-aware-hints hides topology-mode=vicinity.dev/balanced, " +
			"so the proxy ignores the load bound.",
		supersededBy: "SVC007",
		find:         boundWithMode,
	},
	{
		ID: "SVC014", Kind: kindService, Default: Deny,
		Summary:      "A load bound contradicts externalTrafficPolicy: Local, so the proxy ignores it.",
		supersededBy: "SVC006",
		find:         boundWithLocalPolicy,
	},
	{
		ID: "SVC015", Kind: kindService, Default: Deny,
		Summary:     "The list of clients is empty, names more than 8, one twice or without its namespace, so the proxy ignores it.",
		find:        invalidClients,
		standsAlone: true,
	},
	{
		ID: "SVC020", Kind: kindService, Default: Warn, Strict: true,
		Summary:      "spec.trafficDistribution has no effect with topology-mode=Auto.",
		supersededBy: "SVC007",
		find:         distributionWithMode,
	},
	{
		ID: "SVC021", Kind: kindService, Default: Warn,
		Summary:      "spec.trafficDistribution has no effect with topology keys.",
		supersededBy: "SVC007",
		find:         distributionWithKeys,
	},
	{
		ID: "SVC022", Kind: kindService, Default: Warn, Strict: true,
		Summary:     "The topology mode is an unknown value, which Kubernetes treats as Disabled; values with a domain are left to vendors.",
		find:        unknownMode,
		standsAlone: true,
	},
	{
		ID: "SVC023", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect on an ExternalName Service, which no proxy serves.",
		find:    settingsOfExternalName,
	},
	{
		ID: "SVC024", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect on a headless Service, except topology keys where DNS applies them.",
		find:    settingsOfHeadless,
	},
	{
		ID: "SVC025", Kind: kindService, Default: Warn,
		Summary: "Topology mode Auto or trafficDistribution is set on a Service without selector, for which no controller computes hints.",
		find:    hintsWithoutSelector,
	},
	{
		ID: "SVC026", Kind: kindService, Default: Warn,
		Summary: "A topology setting has no effect within the cluster with internalTrafficPolicy: Local.",
		find:    settingsWithInternalLocal,
	},
	{
		ID: "SVC027", Kind: kindService, Default: Warn,
		Summary: "The list of topology keys does not end in *, so connections fail where no endpoint matches.",
		find:    keysWithoutWildcard,
	},
	{
		ID: "SVC028", Kind: kindService, Default: Warn,
		Summary: "A topology key follows one that matches wherever it does, so it is never reached.",
		find:    unreachableKeys,
	},
	{
		ID: "SVC029", Kind: kindService, Default: Warn,
		Summary: "A topology key is a label of failure-domain.beta.kubernetes.io, which Kubernetes has replaced.",
		find:    deprecatedKeys,
	},
	{
		ID: "SVC030", Kind: kindService, Default: Warn,
		Summary: "No node has the label of a topology key, so the key never matches.",
		find:    keysOnNoNode,
	},
	{
		ID: "SVC031", Kind: kindService, Default: Warn,
		Summary:     "A topology setting is misplaced, such as in a label, or its name is misspelt, so it has no effect.",
		find:        misplacedSettings,
		standsAlone: true,
	},
	{
		ID: "SVC032", Kind: kindService, Default: Warn,
		Summary:     "spec.topologyKeys was removed in Kubernetes 1.22; API servers drop it.",
		find:        removedField,
		standsAlone: true,
	},
	{
		ID: "SVC033", Kind: kindService, Default: Warn,
		Summary: "The annotation openyurt.io/topologyKeys is not read, and no topology keys are set.",
		find:    openYurtAnnotation,
	},
	{
		ID: "SVC034", Kind: kindService, Default: Warn,
		Summary: "The proxy name is empty, so no proxy serves the Service, or it changes on a live Service.",
		find:    changedProxyName,
	},
	{
		ID: "SVC035", Kind: kindService, Default: Warn,
		Summary: "Topology keys, or a load bound, are set on a Service of another proxy, which does not read them.",
		find:    settingsOfAnotherProxy,
	},
	{
		ID: "SVC036", Kind: kindService, Default: Warn,
		Summary: "Clients or a demand source are set without a load bound, so they have no effect unless the proxy has --default-max-load.",
		find:    demandWithoutBound,
	},
	{
		ID: "SVC037", Kind: kindService, Default: Warn,
		Summary: "A Service is named as its own client; that is right only if its endpoints call one another.",
		find:    selfClient,
	},
	{
		ID: "SVC038", Kind: kindService, Default: Warn,
		Summary: "A client names a Service that does not exist, so no demand comes from it.",
		find:    unknownClients,
	},
	{
		ID: "SVC041", Kind: kindService, Default: Warn,
		Summary: "A load bound does not count clients with session affinity, which stay with their endpoints.",
		find:    boundWithAffinity,
	},
	{
		ID: "SVC042", Kind: kindService, Default: Warn,
		Summary: "Topology keys are set on a headless Service with publishNotReadyAddresses, and hide its members from each other.",
		find:    keysOfMembers,
	},
	{
		ID: "SVC044", Kind: kindService, Default: Warn,
		Summary: "Measured demand is requested, but not published in this cluster, so demand is assumed.",
		find:    unpublishedDemand,
	},
	{
		ID: "SVC045", Kind: kindService, Default: Warn,
		Summary: "Demand is measured by zone, so skew between the groups of a topology key that divides zones is not measured.",
		find:    keysSplittingZones,
	},
	{
		ID: "NS001", Kind: kindNamespace, Default: Deny,
		Summary:     "The default topology mode is not one of Auto, Disabled, vicinity.dev/balanced and None, so no Service gets it.",
		find:        unknownDefault(policy.DefaultTopologyModeAnnotation, policy.ModeAuto, policy.ModeDisabled, policy.ModeBalanced),
		standsAlone: true,
	},
	{
		ID: "NS002", Kind: kindNamespace, Default: Deny,
		Summary:     "The default topology keys are invalid, as in SVC001 to SVC005, so no Service gets them.",
		find:        invalidDefaultKeys,
		standsAlone: true,
	},
	{
		ID: "NS003", Kind: kindNamespace, Default: Deny,
		Summary:     "The default traffic distribution is not one of PreferSameZone, PreferSameNode and None, so no Service gets it.",
		find:        unknownDefault(policy.DefaultTrafficDistributionAnnotation, policy.PreferSameZone, policy.PreferSameNode),
		standsAlone: true,
	},
	{
		ID: "NS004", Kind: kindNamespace, Default: Deny,
		Summary:     "There is more than one kind of default, so no Service gets any.",
		find:        multipleDefaults,
		standsAlone: true,
	},
	{
		ID: "NS005", Kind: kindNamespace, Default: Deny,
		Summary:     "An annotation or label of vicinity.dev is unknown on Namespaces, or has an unknown value, so it has no effect.",
		find:        unknownNamespaceKeys,
		standsAlone: true,
	},
	{
		ID: "EPS001", Kind: kindEndpointSlice, Default: Deny,
		Summary: "The zone of an endpoint is empty, or cannot be the value of a node label.",
	},
	{
		ID: "EPS002", Kind: kindEndpointSlice, Default: Deny,
		Summary: "A hint names the zone \"\", which selects all nodes without a zone.",
	},
	{
		ID: "EPS003", Kind: kindEndpointSlice, Default: Warn,
		Summary: "Some ready endpoints have hints and others do not, so proxies ignore all hints of the Service.",
	},
	{
		ID: "NODE001", Kind: kindNode, Default: Warn,
		Summary: "The zone of a node is empty, which turns topology-mode=Auto off for every Service.",
	},
	{
		ID: "NODE002", Kind: kindNode, Default: Warn,
		Summary: "The zone of a live node changes: " + policy.ZoneInSlices + ".",
	},
	{
		ID: "NODE003", Kind: kindNode, Default: Warn,
		Summary: "The demand of a node is not a whole number from 0 to 100, so proxies treat it as absent.",
	},
	{
		ID: "NODE004", Kind: kindNode, Default: Warn,
		Summary: "The evacuation of a node is neither true nor false nor a time in UTC, so proxies treat it as absent.",
	},
}

// Rules returns every rule, in the order of lists of violations.
func Rules() []Rule { return slices.Clone(rules) }

// RuleOf returns the rule with an ID.
func RuleOf(id ID) (Rule, bool) {
	i := slices.IndexFunc(rules, func(rule Rule) bool { return rule.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// examine returns the violations of an object by all rules for its kind.
func examine(kind string, s *subject) []Violation {
	var all []Violation
	for i := range rules {
		rule := &rules[i]
		if rule.Kind != kind || rule.find == nil {
			continue
		}
		for _, violation := range rule.find(s) {
			violation.Rule, violation.definition = rule.ID, rule
			all = append(all, violation)
		}
	}
	return all
}
