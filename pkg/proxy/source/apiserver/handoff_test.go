package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// version is a version of Service web.
type version struct {
	port           int32
	label          string // of its proxy; empty for none
	uid            string // empty for the usual one
	isExternalName bool
	isBad          bool
}

func (v version) service(number int) *corev1.Service {
	service := webService()
	service.ResourceVersion = fmt.Sprint(number)
	service.Spec.Ports[0].Port = v.port
	if v.uid != "" {
		service.UID = types.UID(v.uid)
	}
	if v.label != "" {
		service.Labels = map[string]string{policy.ServiceProxyNameLabel: v.label}
	}
	if v.isExternalName {
		service.Spec.Type, service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
	}
	if v.isBad {
		service.Spec.Type = "Bad"
	}
	return service
}

// moment is an event of the watch of Services, or none, at a given time after the previous moment, and the updates
// delivered until then.
type moment struct {
	after   time.Duration
	event   watch.EventType
	version version
	want    string
}

// runMoments applies moments to a proxy with a name, or without one.
func runMoments(t *testing.T, proxyName string, moments []moment) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		r := run(t, func(options Options) *Watcher {
			options.ServiceProxyName = proxyName
			return api.watcher(options)
		})
		synctest.Wait()
		seen := r.count()
		for i, moment := range moments {
			time.Sleep(moment.after)
			if moment.event != "" {
				api.services <- watch.Event{Type: moment.event, Object: moment.version.service(i + 2)}
			}
			synctest.Wait()
			var words []string
			for _, update := range r.delivered()[seen:] {
				words = append(words, strings.TrimSpace(updateText(update)+problems("!", update.NewProblems)+problems("ok", update.ResolvedProblems)))
			}
			seen += len(words)
			if got := strings.Join(words, "; "); got != moment.want {
				t.Errorf("moment %d (%s): delivered %q, want %q", i, moment.event, got, moment.want)
			}
		}
		r.end(t)
	})
}

// problems returns the mark once for each problem.
func problems(mark string, findings []model.Finding) string {
	return strings.Repeat(" "+mark, len(findings))
}

const beforeHandoffEnd = handoffDelay - time.Millisecond

func TestHandoffToAnotherProxy(t *testing.T) {
	ourService, theirService := version{port: 80}, version{port: 80, label: "other"}
	added := moment{event: watch.Added, version: ourService, want: "service/web:80"}
	handedOff := moment{after: time.Hour, event: watch.Modified, version: theirService}
	// becomes returns another version a second later. By default no update is expected.
	modified := func(v version) moment { return moment{after: time.Second, event: watch.Modified, version: v} }
	withWant := func(m moment, want string) moment { m.want = want; return m }
	external := version{port: 80, label: "other", isExternalName: true}
	invalid, otherUID := version{port: 80, isBad: true}, version{port: 80, label: "other", uid: "another"}
	const remaining = time.Millisecond
	for name, moments := range map[string][]moment{
		"it is handed off":   {added, handedOff, {after: beforeHandoffEnd}, {after: remaining, want: "-service/web"}, {after: time.Hour}},
		"deleted while ours": {added, {after: time.Hour, event: watch.Deleted, version: ourService, want: "-service/web"}},
		"deleted during the handoff": {
			added, handedOff, {after: time.Second, event: watch.Deleted, version: theirService, want: "-service/web"}, {after: time.Hour},
		},
		"deleted after the handoff": {
			added, handedOff, {after: handoffDelay, want: "-service/web"}, {after: time.Second, event: watch.Deleted, version: theirService},
		},
		"changes during the handoff are ignored": {
			added, handedOff, modified(version{port: 81, label: "other"}), modified(version{port: 82, label: "a third"}),
			{after: beforeHandoffEnd - 2*time.Second}, {after: remaining, want: "-service/web"}, modified(version{port: 83, label: "other"}),
		},
		"returns unchanged during the handoff": {added, handedOff, {after: beforeHandoffEnd, event: watch.Modified, version: ourService},
			{after: time.Hour}},
		"returns changed during the handoff": {added, handedOff, withWant(modified(version{port: 81}), "service/web:81"), {after: time.Hour}},
		"returns and is handed off again": {
			added, handedOff, modified(ourService), modified(theirService), {after: beforeHandoffEnd}, {after: remaining, want: "-service/web"},
			{after: time.Hour},
		},
		"returns after the handoff": {
			added, handedOff, {after: handoffDelay, want: "-service/web"}, withWant(modified(ourService), "service/web:80"), {after: time.Hour},
		},
		"returns invalid": {added, handedOff, withWant(modified(invalid), "!"), {after: time.Hour}},
		"invalid before the handoff": {
			added, withWant(modified(invalid), "!"), withWant(modified(theirService), "ok"), {after: handoffDelay, want: "-service/web"},
		},
		"loses its ClusterIP at the handoff":     {added, withWant(modified(external), "-service/web"), {after: time.Hour}},
		"loses its ClusterIP during the handoff": {added, handedOff, withWant(modified(external), "-service/web"), {after: time.Hour}},
		"missed deletion, then another proxy's Service of that name": {
			added, withWant(modified(otherUID), "-service/web"), {after: time.Hour},
		},
		"missed deletion during the handoff": {added, handedOff, withWant(modified(otherUID), "-service/web"), {after: time.Hour}},
		"another proxy's becomes ours": {
			{event: watch.Added, version: theirService}, withWant(modified(ourService), "service/web:80"), {after: time.Hour},
		},
		"never ours": {
			{event: watch.Added, version: theirService}, modified(version{port: 81, label: "other"}), {after: time.Hour},
			{event: watch.Deleted, version: theirService},
		},
	} {
		t.Run(name, func(t *testing.T) { runMoments(t, "", moments) })
	}
}

func TestHandoffFromANamedProxy(t *testing.T) {
	ours := version{port: 80, label: "vicinity"}
	for name, foreign := range map[string]version{"no label": {port: 80}, "another name": {port: 80, label: "other"}} {
		t.Run(name, func(t *testing.T) {
			runMoments(t, "vicinity", []moment{
				{event: watch.Added, version: foreign},
				{after: time.Second, event: watch.Modified, version: ours, want: "service/web:80"},
				{after: time.Second, event: watch.Modified, version: foreign}, {after: beforeHandoffEnd},
				{after: time.Millisecond, want: "-service/web"},
			})
		})
	}
}

// The health check must return when the Service comes back unchanged.
func TestHandoffReleasesHealthCheckPort(t *testing.T) {
	w := newTestState()
	name := nameOf("web")
	service := &model.Service{Name: name, Ports: []model.ServicePort{{Port: 80}}, HealthCheckNodePort: 32000}
	ours, others := &object{name: name, uid: "1", value: service}, &object{name: name, uid: "1", isForOtherProxy: true}
	for _, step := range []struct {
		put  *object
		want uint16
	}{{ours, 32000}, {others, 0}, {ours, 32000}} {
		w.put(convert.Services, step.put)
		update, _ := w.takeUpdate()
		got := update.Change.Services[name]
		if got == nil || got.HealthCheckNodePort != step.want || got.Ports[0].Port != 80 {
			t.Errorf("after %+v the Service is %+v, want health checks at port %d", step.put, got, step.want)
		}
	}
	if service.HealthCheckNodePort != 32000 {
		t.Error("the delivered value was modified")
	}
}

// After an outage of the API server, the Services in the list that belong to another proxy are handed off, and missing
// ones were deleted.
func TestListDuringHandoff(t *testing.T) {
	newObject := func(name string, isOthers bool) *object {
		o := &object{name: nameOf(name), isForOtherProxy: isOthers}
		if !isOthers {
			o.value = &model.Service{Name: nameOf(name), Ports: []model.ServicePort{{Port: 1}}}
		}
		return o
	}
	runSteps(t,
		step{"a list", func(w *testState) {
			w.replace(convert.Services, []*object{newObject("a", false), newObject("b", false), newObject("c", false), newObject("d", false)})
		}, "service/a:1 service/b:1 service/c:1 service/d:1"},
		step{"in the next list two belong to another proxy and one is missing", func(w *testState) {
			w.replace(convert.Services, []*object{newObject("a", true), newObject("b", true), newObject("c", false)})
			w.wait(handoffDelay / 2)
		}, "-service/d"},
		step{"one of the two is missing", func(w *testState) {
			w.replace(convert.Services, []*object{newObject("b", true), newObject("c", false)})
		}, "-service/a"},
		step{"the handoff ends", func(w *testState) { w.wait(handoffDelay / 2) }, "-service/b"},
		step{"no state remains", func(w *testState) {
			if w.handoffs.Len() > 0 || len(w.objects[convert.Services]) != 1 {
				t.Errorf("%v handoffs and objects %v remain", w.handoffs.Len(), w.objects[convert.Services])
			}
		}, ""},
	)
}
