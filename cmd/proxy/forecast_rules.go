package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	webhook "github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// ruleChecker checks Services by the rules of the webhook, with its messages, whether or not it is installed. The proxy
// itself has no rules; only this command reports problems with settings.
func ruleChecker(objects convert.Objects, proxyName string) forecast.RuleChecker {
	facts := webhook.Facts{Nodes: webhook.NewNodeLabels(), Services: serviceNamesIn(objects)}
	for _, node := range objects.Nodes {
		facts.Nodes.Put(node.Name, node.Labels)
	}
	settings := &webhook.Settings{ProxyName: proxyName, DNSByTopology: true}
	return func(before, after *corev1.Service) []forecast.Problem {
		result := webhook.ReviewService(toWebhookService(before), toWebhookService(after), facts, settings)
		var problems []forecast.Problem
		for _, violation := range result.Denied {
			problems = append(problems, forecast.Problem{Code: string(violation.Rule), Sentence: violation.Message(), Denied: true})
		}
		for _, violation := range result.Warned {
			problems = append(problems, forecast.Problem{Code: string(violation.Rule), Sentence: violation.Message()})
		}
		return problems
	}
}

// serviceNames are the names of Services by namespace.
type serviceNames map[string][]string

func serviceNamesIn(objects convert.Objects) serviceNames {
	names := serviceNames{}
	for _, service := range objects.Services {
		names[service.Namespace] = append(names[service.Namespace], service.Name)
	}
	return names
}

// Names returns the names in a namespace. A namespace with a single Service counts as unknown, because a folder may not
// contain all Services.
func (n serviceNames) Names(namespace string) (names []string, known bool) {
	return n[namespace], len(n[namespace]) > 1
}

// toWebhookService converts a Service to the type that the rules use; nil stays nil.
func toWebhookService(service *corev1.Service) *webhook.Service {
	if service == nil {
		return nil
	}
	text, err := json.Marshal(corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: service.Name, Namespace: service.Namespace, Labels: service.Labels, Annotations: service.Annotations,
			DeletionTimestamp: service.DeletionTimestamp,
		},
		Spec: service.Spec,
	})
	if err != nil {
		panic(err) // it was decoded from JSON or the API
	}
	var converted webhook.Service
	if err := json.Unmarshal(text, &converted); err != nil {
		panic(err)
	}
	return &converted
}

// checkChanges fails if the webhook would deny a Service after --annotate, and prints its warnings.
func checkChanges(stderr io.Writer, before, after forecast.Cluster, changes []forecast.Change, checker forecast.RuleChecker) error {
	var denied []error
	seen := map[model.ObjectName]bool{}
	for _, change := range changes {
		annotate, ok := change.(forecast.Annotate)
		if !ok || seen[annotate.Service] {
			continue
		}
		seen[annotate.Service] = true
		for _, problem := range checker(before.Service(annotate.Service), after.Service(annotate.Service)) {
			if problem.Denied {
				denied = append(denied, fmt.Errorf("--annotate %s: %s", annotate.Service, problem.Sentence))
				continue
			}
			sanitize.Fprintf(stderr, "warning: --annotate %s: %s\n", annotate.Service, problem.Sentence)
		}
	}
	return errors.Join(denied...)
}
