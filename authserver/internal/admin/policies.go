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
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// PolicyStore stores connector policies.
type PolicyStore interface {
	ConnectorPolicy(ctx context.Context, workspaceID uuid.UUID) (workspace.ConnectorPolicy, error)
	// ConnectorPolicyEffect counts the connections that a policy would change now.
	ConnectorPolicyEffect(
		ctx context.Context, workspaceID uuid.UUID, p workspace.ConnectorPolicy,
	) (consent.PolicyEffect, error)
	// ReplaceConnectorPolicy replaces the policy that has the digest seen, or for an operator with "" any policy.
	ReplaceConnectorPolicy(
		ctx context.Context, workspaceID uuid.UUID, seen string, p workspace.ConnectorPolicy, event audit.Event,
	) (consent.PolicyChange, error)
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
	return write(out, fmt.Sprintf("platforms    %s\npermissions  %s\ndays         %d\n",
		list(platformNames(c.Platforms)), list(c.Permissions), c.Days))
}

// ShowConnectorPolicy shows the policy of a workspace.
type ShowConnectorPolicy struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (c ShowConnectorPolicy) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.ConnectorPolicy(ctx, id)
	return policyResult(id, found), err
}

// SetConnectorPolicy changes the policy of a workspace and narrows existing connections, or shows the effect. Options
// that are not given keep the current value. The word all stands for every value, and for platforms the word none for
// no value.
type SetConnectorPolicy struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	Platforms   []string `placeholder:"NAMES" help:"Allowed platforms, separated by commas: claude, chatgpt, other; or all, or none."`
	Permissions []string `placeholder:"NAMES" help:"Permissions that may be granted, separated by commas; or all."`
	Days        *int     `help:"Maximum duration of access in days, 1 to 30."`
	DryRun      bool     `help:"Show the effect on existing connections, and change nothing."`
}

// after returns the policy that the command makes of another.
func (c SetConnectorPolicy) after(before workspace.ConnectorPolicy) (workspace.ConnectorPolicy, error) {
	wish := consent.PolicyRequest{Platforms: c.Platforms, Permissions: c.Permissions, Days: before.Days}
	switch {
	case len(c.Platforms) == 0:
		wish.Platforms = platformNames(before.Platforms)
	case slices.Equal(c.Platforms, []string{"all"}):
		wish.Platforms = platformNames(workspace.Platforms())
	case slices.Equal(c.Platforms, []string{"none"}):
		wish.Platforms = nil
	}
	switch {
	case len(c.Permissions) == 0:
		wish.Permissions = before.Permissions.Strings()
	case slices.Equal(c.Permissions, []string{"all"}):
		wish.Permissions = perm.ForConnectors().Strings()
	}
	if c.Days != nil {
		wish.Days = *c.Days
	}
	out, err := wish.Accept()
	if refused, ok := errors.AsType[*consent.PolicyRefusal](err); ok {
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

func (c SetConnectorPolicy) run(ctx context.Context, s *Service) (Result, error) {
	id, err := parseID("workspace", c.Workspace)
	if err != nil {
		return nil, err
	}
	if len(c.Platforms) == 0 && len(c.Permissions) == 0 && c.Days == nil {
		return nil, refuse("give --platforms, --permissions or --days")
	}
	before, err := s.Store.ConnectorPolicy(ctx, id)
	if err != nil {
		return nil, err
	}
	after, err := c.after(before)
	if err != nil {
		return nil, err
	}
	if c.DryRun {
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
	begin string, workspaceID uuid.UUID, p workspace.ConnectorPolicy, e consent.PolicyEffect, changed bool,
) Outcome {
	now := policyResult(workspaceID, p)
	sentence := fmt.Sprintf(
		"%splatforms %s; permissions %s; %s. Connections: %d ended, %d with fewer permissions, %d shortened.", begin,
		list(platformNames(now.Platforms)), strings.Join(now.Permissions, ", "), plural(p.Days, "day"), e.End,
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
