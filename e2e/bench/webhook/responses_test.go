package webhook_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Each kind of review must have the outcome that its name promises.
func TestReviewsGetExpectedResponses(t *testing.T) {
	s := newSetup(t)
	for _, kind := range kinds(t) {
		for _, review := range kind.reviews {
			if got := s.webhook.respond(t, review); got != review.response {
				t.Errorf("%s: the webhook's response is %+v, want %+v", kind.name, got, review.response)
			}
			if got := s.floor.respond(t, review); got != (response{}) {
				t.Errorf("%s: the floor's response is %+v, want none", kind.name, got)
			}
		}
	}
	if got := len(mix(t).reviews); got != 20 {
		t.Errorf("the mix has %d reviews, want 20", got)
	}
}

func (s *measuredServer) respond(t *testing.T, request review) response {
	t.Helper()
	var body bytes.Buffer
	if err := s.dial(t).review(request, &body); err != nil {
		t.Fatal(err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.Response == nil || review.Response.UID != reviewID {
		t.Fatalf("unexpected response %s", &body)
	}
	got := response{patched: len(review.Response.Patch) > 0}
	if len(review.Response.Warnings) > 0 {
		got.warned = ruleIn(review.Response.Warnings[0])
	}
	if !review.Response.Allowed {
		got.denied = ruleIn(review.Response.Result.Details.Causes[0].Message)
	}
	return got
}

// ruleIn returns the rule ID in brackets at the end of a message.
func ruleIn(message string) string {
	return strings.Trim(message[strings.LastIndex(message, "[")+1:], "]")
}
