package lease

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

var start = time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)

// none is the renewal of a Lease that does not exist, or that the reader may not read, if the reader treats both the
// same.
const none = time.Duration(-1)

func TestObserve(t *testing.T) {
	const (
		second, minute, hour = time.Second, time.Minute, time.Hour
		day                  = 24 * time.Hour
	)
	type read struct {
		after   time.Duration // since the previous read, by the reader's clock
		renewed time.Duration // since the beginning, by the clock of the program that renews the Lease; none means no Lease
		age     time.Duration // the expected age; none means no Lease
		isFresh bool          // for an hour
	}
	for name, reads := range map[string][]read{
		"the first value":           {{0, -10 * second, 10 * second, true}},
		"a first value that is old": {{0, -hour, hour, false}, {20 * second, 10 * second, 10 * second, true}},
		"renewed all the time": {
			{0, -10 * second, 10 * second, true}, {20 * second, 10 * second, 10 * second, true}, {20 * second, 40 * second, 0, true},
		},
		"the same value again": {{0, 0, 0, true}, {minute, 0, minute, true}, {minute, 0, 2 * minute, true}},
		"the same value until it is old": {
			{0, second - hour, hour - second, true}, {second, second - hour, hour, false},
		},
		"a clock that is a day ahead": {
			{0, day, 0, true}, {20 * second, day + 20*second, 0, true}, {minute, day + 20*second, minute, true},
		},
		"a clock that is a day behind": {
			{0, -day, day, false}, {20 * second, 20*second - day, 20 * second, true}, {minute, 20*second - day, 80 * second, true},
		},
		"a clock that was set back": {
			{0, minute, 0, true}, {20 * second, 5 * second, 15 * second, true}, {20 * second, 25 * second, 15 * second, true},
			{20 * second, -day, day + minute, false}, {20 * second, 20*second - day, 20 * second, true},
		},
		"no response for three hours": {
			{0, 0, 0, true}, {20 * second, 0, 20 * second, true}, {3 * hour, 0, 80 * second, true},
			{20 * second, 3*hour + 30*second, 10 * second, true},
		},
		"no response, and not renewed for the last two hours": {{0, 0, 0, true}, {3 * hour, hour, 2 * hour, false}},
		"never existed": {{0, none, none, false}, {20 * second, none, none, false}},
		"deleted, or forbidden": {
			{0, 0, 0, true}, {20 * second, none, 0, true}, {20 * second, none, none, false}, {20 * second, 0, minute, true},
		},
		"deleted, or forbidden, for a moment": {
			{0, 0, 0, true}, {20 * second, none, 0, true}, {20 * second, 0, 40 * second, true}, {20 * second, none, 40 * second, true},
		},
	} {
		var o Observed
		now := start
		for i, read := range reads {
			now = now.Add(read.after)
			var renewal Renewal
			if read.renewed != none {
				renewal.At = start.Add(read.renewed)
			}
			o.Observe(now, renewal)
			age := o.Age()
			if !o.Exists() {
				age = none
			}
			if age != read.age || o.IsFresh(time.Hour) != read.isFresh {
				t.Errorf("%s, read %d: age %s, fresh %v, want %s, %v", name, i+1, age, o.IsFresh(time.Hour), read.age, read.isFresh)
			}
			if want := now.Add(-age); !o.wasMissing && o.Exists() && !o.RenewedAt().Equal(want) || !o.Exists() && !o.RenewedAt().IsZero() {
				t.Errorf("%s, read %d: renewed at %s, want %s", name, i+1, o.RenewedAt(), want)
			}
		}
	}
}

// TestGetReadsLeaseDuration. Other results of reads are tested with the readers: in package apiserver of
// the source, and in package cache of the webhook.
func TestGetReadsLeaseDuration(t *testing.T) {
	for seconds, want := range map[*int32]time.Duration{nil: 0, new(int32(60)): time.Minute} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(&coordinationv1.Lease{
				Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(start)), LeaseDurationSeconds: seconds},
			})
		}))
		defer server.Close()
		client, err := coordinationclient.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Get(t.Context(), client.RESTClient(), "system", "example")
		if err != nil || !got.At.Equal(start) || got.For != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
}
