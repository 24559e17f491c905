package postgres_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
)

// A page of members is read by the ids that the list has sorted. Ids of users who are no members are left out.
func TestWorkspaceMembers_AreInTheOrderOfUsers(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	var users []uuid.UUID
	for range 5 {
		users = append(users, m.person().UserID)
	}
	slices.SortFunc(users, func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) })
	asked := slices.Insert(slices.Clone(users), 2, m.fixture.User(anAddress("stranger")))
	members, err := m.WorkspaceMembers(t.Context(), m.workspaceID, asked)
	if err != nil {
		t.Fatal(err)
	}
	var got []uuid.UUID
	for _, member := range members {
		got = append(got, member.UserID)
	}
	if !slices.Equal(got, users) {
		t.Errorf("members in the order %v, want %v", got, users)
	}
}
