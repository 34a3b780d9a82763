package explain

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// warnings returns warnings about settings of the Service without effect, and about probable mistakes.
func warnings(cluster *model.Cluster, decision selection.Decision, lost []LostFrontend) []string {
	service := decision.Service
	var list []string
	for _, finding := range service.Findings {
		if finding.Code.IsAnnotation() {
			list = append(list, "The annotation "+finding.Field+" is ignored: "+finding.Reason)
		}
	}
	if sentence := selection.MissingHints(service, decision.Endpoints); sentence != "" && !service.InternalTrafficLocal {
		if noZone := selection.MissingZone(service, decision.Endpoints, decision.Viewpoint); noZone != "" {
			sentence += " " + noZone
		}
		list = append(list, sentence)
	}
	for _, client := range service.Clients() {
		if len(cluster.SlicesOf(client)) == 0 {
			list = append(list, fmt.Sprintf("The annotation %s names %s, which has no known endpoint: it may be misspelled, have no pods, or "+
				"be headless without topology keys, which no proxy watches.", policy.ClientsAnnotation, client))
		}
	}
	for _, frontend := range lost {
		list = append(list, frontend.Message)
	}
	if len(service.SourceRanges) > 0 && hasFrontendKind(decision, model.LoadBalancerIP) &&
		len(decision.Sources) == 0 {
		list = append(list, fmt.Sprintf("The LoadBalancerIPs are open to all clients over %s, because loadBalancerSourceRanges has no %s range.",
			decision.Family, decision.Family))
	}
	if decision.Skipped > 0 {
		list = append(list, sanitize.CountOf(decision.Skipped, "endpoint is", "endpoints are")+" skipped: "+selection.TooManyEndpoints)
	}
	for _, finding := range decision.Findings() {
		switch finding.Code {
		case model.FrontendConflict, model.FrontendIsAPIServer, model.FrontendIsProbed,
			model.PartiallyIgnored: // the report has them elsewhere
		default:
			list = append(list, finding.Sentence())
		}
	}
	for _, finding := range service.Findings {
		if !finding.Code.IsAnnotation() {
			list = append(list, findingSentence(finding, "Service"))
		}
	}
	for _, slice := range cluster.SlicesOf(service.Name) {
		if slice.Family != decision.Family {
			continue
		}
		for _, finding := range slice.Findings {
			list = append(list, findingSentence(finding, "EndpointSlice "+slice.Name.String()))
		}
	}
	return list
}

// findingSentence describes which part of an object has no effect.
func findingSentence(finding model.Finding, object string) string {
	if finding.Code == model.PartiallyIgnored {
		return "Ignored in the " + object + ": " + finding.Sentence()
	}
	return finding.Sentence()
}
