package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The permissions name exactly the modules that have routes.
func TestModules_AreThoseOfPermissions(t *testing.T) {
	t.Parallel()
	app := unconnected(t)
	var names []string
	for _, m := range app.modules {
		names = append(names, m.name)
		for _, some := range m.routes {
			for path := range some {
				if !strings.HasPrefix(path, "/v1/"+m.name+"/") {
					t.Errorf("%s is a route of %s", path, m.name)
				}
			}
		}
	}
	known := perm.Modules()
	slices.Sort(names)
	slices.Sort(known)
	if !slices.Equal(names, known) {
		t.Errorf("modules %q, permissions of %q", names, known)
	}
}

// forWorkspace returns the described operations that act in the workspace of the tenant header.
func forWorkspace(t *testing.T) []openapi.Operation {
	t.Helper()
	operations := slices.DeleteFunc(described(t), func(o openapi.Operation) bool {
		return !slices.ContainsFunc(o.List("parameters"), func(parameter any) bool {
			return parameter.(openapi.Object).Text("$ref") == "#/components/parameters/Tenant"
		})
	})
	if len(operations) < 12 {
		t.Fatalf("only %d operations", len(operations))
	}
	return operations
}

// Every route of every module makes the checks of the contract's table (section 6) in their order.
func TestModules_GateEveryRoute(t *testing.T) {
	s := newService(t)
	var all []perm.Permission
	for _, entry := range perm.All() {
		all = append(all, entry.ID)
	}
	workspaceID, user := s.member(all...)
	able, unable := s.PAT(workspaceID, user, all...).Reveal(), s.PAT(workspaceID, user).Reveal()
	const setModule = "update account.tenant_modules set enabled = $2, provisioned = $3 where {mine} and module = $1"
	for _, o := range forWorkspace(t) {
		if o.Path == eventsPath { // of no module, and for every member
			continue
		}
		module := strings.Split(o.Path, "/")[2]
		path := strings.NewReplacer("{id}", uuid.NewString(), "{delivery}", uuid.NewString()).Replace(o.Path)
		s.do(o.Method, path, header{}, "").expect(t, 401, "UNAUTHENTICATED", "none")
		s.do(o.Method, path, header{"Authorization": "Bearer " + able}, "").expect(t, 400, "VALIDATION_ERROR", "")
		s.do(o.Method, path, as(able, uuid.New()), "").expect(t, 403, "FORBIDDEN", "")
		s.do(o.Method, path, as(unable, workspaceID), "").expect(t, 403, "FORBIDDEN", "")
		if slices.Contains(perm.Modules(), module) {
			s.Exec(setModule, module, false, true)
			s.do(o.Method, path, as(able, workspaceID), "").expect(t, 403, "MODULE_NOT_ENABLED", "")
			s.Exec(setModule, module, true, false)
			s.do(o.Method, path, as(able, workspaceID), "").expect(t, 503, "TENANT_NOT_PROVISIONED", "")
			s.Exec(setModule, module, true, true)
		} else if !strings.HasPrefix(path, webhooksPath) {
			t.Errorf("%s belongs to no module", path)
		}
		if t.Failed() {
			t.Fatalf("%s %s", o.Method, path)
		}
		// A list needs no body and no record, so its response shows that no other check refuses the request.
		a := s.do(o.Method, path, as(able, workspaceID), "")
		isList := o.Method == "GET" && path == o.Path
		if a.Status >= 500 || a.Status == 401 || a.Status == 403 || isList && a.Status != 200 {
			t.Errorf("%s %s: %d %s", o.Method, path, a.Status, a.Body)
		}
	}
}
