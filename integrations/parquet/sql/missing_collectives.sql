-- Collectives that are missing on ranks which have the step, and collectives of the group in any step.
select e.run as run, e.step as step, e.group_name as group_name, e.number as number, e.rank as rank
from (
    select c.run as run, c.step as step, c.group_name as group_name, c.number as number, m.rank as rank
    from (select distinct run, step, group_name, number from arrivals) c
    join (select distinct run, group_name, rank from arrivals) m on c.run = m.run and c.group_name = m.group_name
    join whole_steps w on m.run = w.run and m.rank = w.rank and c.step = w.step
) e
left join arrivals a
    on e.run = a.run and e.step = a.step and e.group_name = a.group_name and e.number = a.number and e.rank = a.rank
where coalesce(a.ranks, 0) = 0
order by run, step, group_name, number, rank
