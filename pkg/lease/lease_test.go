package lease

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

var began = time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)

// none is the renewal of a Lease that does not exist, or may not be read by a reader to whom that is the same.
const none = time.Duration(-1)

func TestWhetherALeaseIsFreshIsDecidedByOurOwnClock(t *testing.T) {
	const (
		second, minute, hour = time.Second, time.Minute, time.Hour
		day                  = 24 * time.Hour
	)
	type read struct {
		after   time.Duration // since the read before, by our own clock
		renewed time.Duration // since the beginning, by the clock of whoever renews it; none: there is no Lease
		age     time.Duration // as it is found; none: there is no Lease
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
		"no answer for three hours": {
			{0, 0, 0, true}, {20 * second, 0, 20 * second, true}, {3 * hour, 0, 80 * second, true},
			{20 * second, 3*hour + 30*second, 10 * second, true},
		},
		"no answer, and not renewed for the last two": {{0, 0, 0, true}, {3 * hour, hour, 2 * hour, false}},
		"never there": {{0, none, none, false}, {20 * second, none, none, false}},
		"deleted, or forbidden": {
			{0, 0, 0, true}, {20 * second, none, 0, true}, {20 * second, none, none, false}, {20 * second, 0, minute, true},
		},
		"deleted, or forbidden, for a moment": {
			{0, 0, 0, true}, {20 * second, none, 0, true}, {20 * second, 0, 40 * second, true}, {20 * second, none, 40 * second, true},
		},
	} {
		var o Observed
		now := began
		for i, read := range reads {
			now = now.Add(read.after)
			var renewal Renewal
			if read.renewed != none {
				renewal.At = began.Add(read.renewed)
			}
			o.Observe(now, renewal)
			age := o.Age()
			if !o.Exists() {
				age = none
			}
			if age != read.age || o.IsFresh(time.Hour) != read.isFresh {
				t.Errorf("%s, read %d: age %s, fresh %v, want %s, %v", name, i+1, age, o.IsFresh(time.Hour), read.age, read.isFresh)
			}
			if want := now.Add(-age); !o.isMissed && o.Exists() && !o.RenewedAt().Equal(want) || !o.Exists() && !o.RenewedAt().IsZero() {
				t.Errorf("%s, read %d: renewed at %s, want %s", name, i+1, o.RenewedAt(), want)
			}
		}
	}
}

// TestALeaseThatIsNotRenewedIsOldAfterAnHour of reads.
func TestALeaseThatIsNotRenewedIsOldAfterAnHour(t *testing.T) {
	var o Observed
	now, reads := began, 0
	for o.Observe(now, Renewal{At: began}); o.IsFresh(time.Hour); o.Observe(now, Renewal{At: began}) {
		now, reads = now.Add(20*time.Second), reads+1
	}
	if reads != 180 {
		t.Errorf("it is fresh for %d reads, want 180: an hour", reads)
	}
}

func TestGet(t *testing.T) {
	renewed := new(metav1.NewMicroTime(began))
	for name, test := range map[string]struct {
		status int
		spec   coordinationv1.LeaseSpec
		want   Renewal
		is     func(error) bool // nil: there is none
	}{
		"a Lease": {
			http.StatusOK, coordinationv1.LeaseSpec{RenewTime: renewed, LeaseDurationSeconds: new(int32(60))}, Renewal{began, time.Minute}, nil,
		},
		"it does not say for how long": {http.StatusOK, coordinationv1.LeaseSpec{RenewTime: renewed}, Renewal{At: began}, nil},
		"it was never renewed":         {http.StatusOK, coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(60))}, Renewal{}, nil},
		"there is none":                {http.StatusNotFound, coordinationv1.LeaseSpec{}, Renewal{}, nil},
		"it is forbidden":              {http.StatusForbidden, coordinationv1.LeaseSpec{}, Renewal{}, apierrors.IsForbidden},
		"the API server fails":         {http.StatusInternalServerError, coordinationv1.LeaseSpec{}, Renewal{}, apierrors.IsInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, status := any(&coordinationv1.Lease{Spec: test.spec}), test.status
				if r.Method+r.URL.Path != "GET/apis/coordination.k8s.io/v1/namespaces/system/leases/example" {
					status = http.StatusTeapot
				}
				if status != http.StatusOK {
					reason := map[int]metav1.StatusReason{
						http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
						http.StatusInternalServerError: metav1.StatusReasonInternalError,
					}[status]
					answer = &metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Reason: reason}
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			client, err := coordinationclient.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), client.RESTClient(), "system", "example")
			if !got.At.Equal(test.want.At) || got.For != test.want.For {
				t.Errorf("got %v, want %v", got, test.want)
			}
			switch {
			case test.is == nil && err != nil, test.is != nil && !test.is(err):
				t.Errorf("error %v", err)
			case err != nil && !strings.Contains(err.Error(), "reading Lease system/example: "):
				t.Errorf("error %v does not say what failed", err)
			}
		})
	}
}
