package rules

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// Rules that are named in more than one place.
const (
	keysBesideMode         ID = "SVC007"
	distributionBesideMode ID = "SVC020"
	distributionBesideKeys ID = "SVC021"
)

// subject is a Service with its topology settings as they are understood.
type subject struct {
	*Service
	cluster   Cluster
	proxyName string

	keysText string // of the annotation
	hasKeys  bool
	keys     []policy.Key // nil if they are wrong
	mode     policy.ModeSetting
}

func subjectOf(service *Service, cluster Cluster, proxyName string) *subject {
	s := &subject{Service: service, cluster: cluster, proxyName: proxyName, mode: policy.ModeOf(service.Metadata.Annotations)}
	if s.keysText, s.hasKeys = service.Metadata.Annotations[policy.TopologyKeysAnnotation]; s.hasKeys {
		s.keys, _ = policy.ParseKeys(s.keysText)
	}
	return s
}

// isExternalName and isHeadless: no proxy serves these. In a review an ordinary Service may have no ClusterIP yet.
func (s *subject) isExternalName() bool { return s.Spec.Type == typeExternalName }

func (s *subject) isHeadless() bool { return !s.isExternalName() && s.Spec.ClusterIP == headless }

// isServed reports whether Vicinity's proxy serves the Service.
func (s *subject) isServed() bool {
	return !s.isExternalName() && !s.isHeadless() && policy.IsHandledBy(s.Metadata.Labels, s.proxyName)
}

// distribution is spec.trafficDistribution.
func (s *subject) distribution() (value string, present bool) {
	if s.Spec.TrafficDistribution == nil {
		return "", false
	}
	return *s.Spec.TrafficDistribution, true
}

// examineService finds everything that is wrong with a Service, seen alone. Each finding is made whatever the others are: what masks
// another one in an old object would make the other look new once it is mended.
func examineService(service *Service, cluster Cluster, settings *Settings) []finding {
	s := subjectOf(service, cluster, settings.ProxyName)
	var findings []finding
	for _, find := range [...]func(*subject) []finding{
		findKeys, findLocalConflict, findModeConflict, findModeValues, findServiceWords,
		findUnusedDistribution, findUnserved, findWithoutSelector, findInternalLocal,
		findHardKeys, findUnreachableKeys, findDeprecatedKeys, findUncarriedKeys,
		findMisplaced, findRemovedField, findOpenYurt, findForeignKeys,
	} {
		findings = append(findings, find(s)...)
	}
	return findings
}
