package strictjson_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

func TestUnknownParameters_NamesUnknownParameters(t *testing.T) {
	for query, want := range map[string][]string{
		"":                         nil,
		"&":                        nil,
		"limit=5&cursor=x&limit=6": nil,
		"li%6dit=5":                nil,
		"Limit=5":                  {"Limit"},
		"limit=5&sort=name&sort=x": {"sort"},
		"b&a=1":                    {"a", "b"},
		"=1":                       {`""`},
		"limit%=1":                 {"limit%"},
		"limit;x=1":                {"limit;x"},
		"%00=1":                    {`"\x00"`},
		"%ff=1":                    {`"\xff"`},
		strings.Repeat("x", 70):    {strings.Repeat("x", 64) + "…"},
	} {
		err := strictjson.UnknownParameters(query, "limit", "cursor")
		refusal, refused := errors.AsType[*apierr.Error](err)
		if refused != (want != nil) {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if refused &&
			(refusal.Kind != apierr.Invalid || !slices.Equal(slices.Sorted(maps.Keys(refusal.Fields)), want)) {
			t.Errorf("%s: %v", query, refusal.Fields)
		}
	}
}

func TestUnknownMembers_LimitsNumberOfNames(t *testing.T) {
	object := strictjson.Object{"name": nil, "Name": nil}
	if found := strictjson.UnknownMembers(object, "name"); len(found) != 1 || found["Name"] == "" {
		t.Errorf("%v", found)
	}
	for i := range 5000 {
		object[fmt.Sprintf("member%04d", i)] = nil
	}
	if found := strictjson.UnknownMembers(object, "name"); len(found) != 10 {
		t.Errorf("%d names", len(found))
	}
}
