package events

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry returns a queued event about "namespace/name".
func entry(text string) queuedEvent {
	namespace, name, _ := strings.Cut(text, "/")
	return queuedEvent{event: Event{Regarding: Reference{Namespace: namespace, Name: name}}}
}

func textOf(entry queuedEvent) string {
	return entry.event.Regarding.Namespace + "/" + entry.event.Regarding.Name
}

func (q *queue) popAll() []string {
	var texts []string
	for len(q.entries) > 0 {
		texts = append(texts, textOf(q.pop()))
	}
	return texts
}

func TestNamespacesAreServedFairly(t *testing.T) {
	var q queue
	for _, text := range []string{"a/1", "a/2", "a/3", "b/1", "/node", "b/2"} {
		if dropped, isDropped := q.push(entry(text)); isDropped {
			t.Errorf("%s was dropped", textOf(dropped))
		}
	}
	if diff := cmp.Diff([]string{"a/1", "b/1", "/node", "a/2", "b/2", "a/3"}, q.popAll()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	q.push(entry("b/3"))
	if diff := cmp.Diff([]string{"b/3"}, q.popAll()); diff != "" {
		t.Errorf("after it was empty (-want +got):\n%s", diff)
	}
}

func TestAFullQueueDropsTheNewestOfTheLargestNamespace(t *testing.T) {
	var q queue
	push := func(text, wantDropped string) {
		t.Helper()
		got := ""
		if dropped, isDropped := q.push(entry(text)); isDropped {
			got = textOf(dropped)
		}
		if got != wantDropped {
			t.Errorf("pushing %s dropped %q, want %q", text, got, wantDropped)
		}
	}
	for i := range maxWaiting - 3 {
		push(fmt.Sprintf("large/%d", i), "")
	}
	for i := range 3 {
		push(fmt.Sprintf("shop/%d", i), "")
	}
	push("large/more", "large/more")
	push("shop/3", "large/96")
	push("/node", "large/95")
	if len(q.entries) != maxWaiting {
		t.Errorf("%d entries, want %d", len(q.entries), maxWaiting)
	}
	want := []string{"large/0", "shop/0", "/node", "large/1", "shop/1", "large/2", "shop/2", "large/3", "shop/3", "large/4"}
	got := q.popAll()
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(got) != maxWaiting || got[maxWaiting-1] != "large/94" {
		t.Errorf("got %d entries, the last was %s; want %d and large/94", len(got), got[len(got)-1], maxWaiting)
	}
}

func TestAFullQueueOfManyNamespacesKeepsItsEntries(t *testing.T) {
	var q queue
	var want []string
	for i := range maxWaiting {
		text := fmt.Sprintf("namespace-%d/web", i)
		q.push(entry(text))
		want = append(want, text)
	}
	if dropped, isDropped := q.push(entry("late/web")); !isDropped || textOf(dropped) != "late/web" {
		t.Errorf("dropped %v %s, want the newest one", isDropped, textOf(dropped))
	}
	if diff := cmp.Diff(want, q.popAll()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
