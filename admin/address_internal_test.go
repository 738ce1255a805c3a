package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestNamespaceSearchReportsThatItStoppedEarly(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client := server.Admin(t)
	pipe := client.Pipeline()
	for i := range 3 * scanCount {
		pipe.Set(t.Context(), fmt.Sprint("key-", i), "v", 0)
	}
	_, err := pipe.Exec(t.Context())
	redistest.Must(t, err)
	redistest.Must(t, client.HSet(t.Context(), "shop:{0}:inbox:a", "id", "x").Err(), client.HSet(t.Context(), "shop:{zz}x:inbox:a", "id", "x").Err())
	for _, c := range []struct {
		calls int
		stops bool
	}{{1, true}, {100, false}} {
		search := &namespaceSearch{calls: c.calls, shards: map[string]string{}}
		redistest.Must(t, search.scan(redistest.Soon(t), client, "the server"))
		if stopped := errors.Join(search.stopped...); (stopped != nil) != c.stops {
			t.Errorf("%d calls: %v", c.calls, stopped)
		} else if c.stops && !strings.Contains(stopped.Error(), "SCAN read only the first 1000 keys of the server") {
			t.Error(stopped)
		}
		if _, found := search.shards["shop"]; !c.stops && (!found || len(search.shards) != 1) {
			t.Errorf("found %v", search.shards)
		}
	}
}

func TestAddressErrorNamesPlacesLayoutsAndTheLimitsOfTheSearch(t *testing.T) {
	t.Parallel()
	err := &AddressError{
		Wanted:     placeOf("luatx 4, namespace shop, 16 partitions"),
		Found:      []Place{placeOf("luatx 3, namespace shop, 16 partitions"), placeOf("luatx 4, namespace shop, own tags"), {Namespace: "hidden"}},
		Incomplete: errors.New("no rights"),
	}
	want := "admin: no shard has --namespace shop --keyspace partitions=16 with layout 4; found --namespace shop --keyspace partitions=16 with layout 3, " +
		"--namespace shop --keyspace own, --namespace hidden; the search is incomplete: no rights"
	if err.Error() != want || !err.Misplaced() {
		t.Errorf("%s, want %s", err, want)
	}
	if (&AddressError{Wanted: err.Wanted, Found: err.Found[2:]}).Misplaced() {
		t.Error("Misplaced is true for another namespace")
	}
}
