package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Policies stores connector policies.
type Policies interface {
	ConnectorPolicy(ctx context.Context, workspaceID uuid.UUID) (workspace.ConnectorPolicy, error)
	// ConnectorPolicyEffect counts the connections that a policy would change now.
	ConnectorPolicyEffect(
		ctx context.Context, workspaceID uuid.UUID, p workspace.ConnectorPolicy,
	) (policy.Effect, error)
	// ReplaceConnectorPolicy replaces the policy that has the digest seen, or for an operator with "" any policy.
	ReplaceConnectorPolicy(
		ctx context.Context, workspaceID uuid.UUID, seen string, p workspace.ConnectorPolicy, event audit.Event,
	) (policy.Change, error)
}

// A ConnectorPolicy is the policy of one workspace.
type ConnectorPolicy struct {
	WorkspaceID uuid.UUID            `json:"tenantId"`
	Platforms   []workspace.Platform `json:"platforms"`
	Permissions []string             `json:"permissions"`
	Days        int                  `json:"days"`
}

func policyResult(workspaceID uuid.UUID, p workspace.ConnectorPolicy) ConnectorPolicy {
	return ConnectorPolicy{workspaceID, append([]workspace.Platform{}, p.Platforms...), p.Permissions.Strings(), p.Days}
}

// Text writes the policy as text.
func (c ConnectorPolicy) Text(out io.Writer) error {
	_, err := fmt.Fprintf(out, "platforms    %s\npermissions  %s\ndays         %d\n", list(platformNames(c.Platforms)),
		list(c.Permissions), c.Days)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// ConnectorPolicy shows the policy of a workspace.
func (s *Service) ConnectorPolicy(ctx context.Context, workspace string) (Result, error) {
	id, err := parseID("workspace", workspace)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.ConnectorPolicy(ctx, id)
	if err != nil {
		return nil, err
	}
	return policyResult(id, found), nil
}

// A PolicyChange is a change of a policy; nil and empty fields keep the current value. The word all stands for every
// value, and for platforms the word none for no value.
type PolicyChange struct {
	Platforms, Permissions []string
	Days                   *int
}

func (p PolicyChange) of(before workspace.ConnectorPolicy) (workspace.ConnectorPolicy, error) {
	wish := policy.Request{Platforms: p.Platforms, Permissions: p.Permissions, Days: before.Days}
	switch {
	case len(p.Platforms) == 0:
		wish.Platforms = platformNames(before.Platforms)
	case slices.Equal(p.Platforms, []string{"all"}):
		wish.Platforms = platformNames(workspace.Platforms())
	case slices.Equal(p.Platforms, []string{"none"}):
		wish.Platforms = nil
	}
	switch {
	case len(p.Permissions) == 0:
		wish.Permissions = before.Permissions.Strings()
	case slices.Equal(p.Permissions, []string{"all"}):
		wish.Permissions = perm.ForConnectors().Strings()
	}
	if p.Days != nil {
		wish.Days = *p.Days
	}
	out, err := wish.Accept()
	if refused, ok := errors.AsType[*policy.Refusal](err); ok {
		return workspace.ConnectorPolicy{}, refuse(refused.Field + ": " + refused.Message)
	}
	return out, err
}

func platformNames(platforms []workspace.Platform) []string {
	out := make([]string, len(platforms))
	for i, p := range platforms {
		out[i] = string(p)
	}
	return out
}

// SetConnectorPolicy changes the policy of a workspace and narrows existing connections. With dryRun it only reports
// the effect.
func (s *Service) SetConnectorPolicy(
	ctx context.Context, workspace string, change PolicyChange, dryRun bool,
) (Result, error) {
	id, err := parseID("workspace", workspace)
	if err != nil {
		return nil, err
	}
	if len(change.Platforms) == 0 && len(change.Permissions) == 0 && change.Days == nil {
		return nil, refuse("give --platforms, --permissions or --days")
	}
	before, err := s.Store.ConnectorPolicy(ctx, id)
	if err != nil {
		return nil, err
	}
	after, err := change.of(before)
	if err != nil {
		return nil, err
	}
	if dryRun {
		effect, err := s.Store.ConnectorPolicyEffect(ctx, id, after)
		return policyOutcome("Dry run, nothing was changed. New policy: ", id, after, effect, false), err
	}
	entry := workspaceEvent(audit.ConnectorPolicyChanged, id, nil)
	done, err := s.Store.ReplaceConnectorPolicy(ctx, id, "", after, entry)
	if err != nil {
		return nil, err
	}
	s.PropagateRevocation(ctx, done.EndedGrants)
	return policyOutcome("Changed the policy: ", id, after, done.Effect, true), nil
}

func policyOutcome(
	begin string, workspaceID uuid.UUID, p workspace.ConnectorPolicy, e policy.Effect, changed bool,
) Outcome {
	now := policyResult(workspaceID, p)
	sentence := fmt.Sprintf(
		"%splatforms %s; permissions %s; %s. Connections: %d ended, %d with fewer permissions, %d shortened.", begin,
		list(platformNames(now.Platforms)), strings.Join(now.Permissions, ", "), plural(p.Days, "day", "days"), e.End,
		e.Lose, e.Sooner)
	return Outcome{sentence, map[string]any{
		"tenantId":        workspaceID,
		"platforms":       now.Platforms,
		"permissions":     now.Permissions,
		"days":            now.Days,
		"changed":         changed,
		"ended":           e.End,
		"lostPermissions": e.Lose,
		"endSooner":       e.Sooner,
	}}
}
